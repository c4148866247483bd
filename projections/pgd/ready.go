package pgd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// readyPoll is how often a starting postmaster is checked.
	readyPoll = 10 * time.Millisecond
	// connectLimit bounds one attempt to connect to a postmaster that reports itself ready.
	connectLimit = 5 * time.Second
)

// Errors after which a start is retried.
var (
	errPortTaken = errors.New("the port is taken")
	errStillUsed = errors.New("backends of the postmaster before are still running")
)

// SQLSTATEs that the readiness check distinguishes.
const (
	sqlInvalidPassword  = "28P01"
	sqlNoSuchDatabase   = "3D000"
	sqlDuplicateDB      = "42P04"
	sqlDuplicateCatalog = "23505" // two sessions creating it at once
)

// The database is made here and not with the cluster: after a crash between the two it is made at the next start.
const createDatabaseSQL = `CREATE DATABASE ` + roleName + ` OWNER ` + roleName

// databaseURL is complete: its holder may connect.
func databaseURL(password string, port int, database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(roleName, password),
		Host:     "127.0.0.1:" + strconv.Itoa(port),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// awaitReady returns when pm accepts connections and database scrip exists. Recovery after a crash may take minutes;
// only ctx bounds the wait.
func (pm *postmaster) awaitReady(ctx context.Context, p place, password string) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		// Only when the pid file has the id of our child and status ready may the port be connected to: it could belong to
		// another server, started between freePort and our start.
		pf, err := readPidfile(p.data())
		if err == nil && pf.pid == pm.pid && pf.status == "ready" {
			again, err := ensureDatabase(ctx, password, pm.port)
			if err == nil {
				return nil
			}
			if !again {
				return fmt.Errorf("%w (log: %s)", err, p.log())
			}
		}
		select {
		case <-pm.exited:
			return pm.exitError(p)
		case <-ctx.Done():
			return fmt.Errorf("waiting for PostgreSQL in %s: %w; after a crash it recovers first, see %s", p.data(), context.Cause(ctx), p.log())
		case <-tick.C:
		}
	}
}

// ensureDatabase connects as scrip and creates the database when it is missing. again is true if a later try may succeed.
func ensureDatabase(ctx context.Context, password string, port int) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, databaseURL(password, port, roleName))
	if err == nil {
		return true, conn.Close(ctx)
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return true, err
	}
	switch pg.Code {
	case sqlNoSuchDatabase:
		return createDatabase(ctx, password, port)
	case sqlInvalidPassword:
		return false, fmt.Errorf("PostgreSQL refuses the stored password of role %s: remove the file named password beside its "+
			"data directory and start again, a new one is then set: %w", roleName, err)
	default:
		return true, err
	}
}

func createDatabase(ctx context.Context, password string, port int) (again bool, err error) {
	conn, err := pgx.Connect(ctx, databaseURL(password, port, "postgres"))
	if err != nil {
		return true, err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, createDatabaseSQL)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == sqlDuplicateDB || pg.Code == sqlDuplicateCatalog) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("creating database %s: %w%s", roleName, err, spaceHint(err.Error()))
	}
	return true, nil
}

// exitError returns the error for a postmaster that ended unexpectedly.
func (pm *postmaster) exitError(p place) error {
	last := pm.last.String()
	err := fmt.Errorf("PostgreSQL in %s ended (%w)%s; its log is %s, last lines:\n%s", p.data(), pm.exit, spaceHint(last), p.log(), last)
	switch {
	case strings.Contains(last, "could not create any TCP/IP sockets"):
		return errors.Join(errPortTaken, err)
	case strings.Contains(last, "pre-existing shared memory block"):
		return errors.Join(errStillUsed, err)
	}
	return err
}
