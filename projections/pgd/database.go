package pgd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

const (
	// readyPoll is how often a starting postmaster is checked.
	readyPoll = 10 * time.Millisecond
	// connectLimit bounds one attempt to connect to a postmaster that reports itself ready.
	connectLimit = 5 * time.Second
	// answerLimit is how long a postmaster that reports itself ready may leave that unanswered. Then it is stopped: one that was
	// adopted may hang.
	answerLimit = time.Minute
)

// SQLSTATEs of a refused connection.
const (
	sqlInvalidPassword = "28P01"
	sqlNoDatabase      = "3D000"
)

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

// awaitReady returns when pm accepts connections and database scrip exists. Recovery after a crash may take minutes: until
// pm reports itself ready only ctx bounds the wait, from then on answerLimit does.
func (h *home) awaitReady(ctx context.Context, pm *postmaster) error {
	var since time.Time
	for {
		now := h.running()
		if now == nil || now.pid != pm.pid {
			return h.exitError(pm.logged, nil)
		}
		if now.status == "stopping" { // perhaps for ever: on request it waits for its clients to leave
			return errors.Join(errStillUsed, fmt.Errorf("PostgreSQL in %s is being stopped", h.place.data()))
		}
		// Not before: the port could belong to another server, started between freePort and our start.
		if now.status == "ready" {
			if since.IsZero() {
				since, pm.port = time.Now(), now.port
			}
			again, err := ensureDatabase(ctx, h.password, pm.port)
			if err == nil {
				return nil
			}
			if !again || time.Since(since) > answerLimit {
				return fmt.Errorf("%w (log: %s)", err, h.place.log())
			}
		}
		if err := natsx.Pause(ctx, readyPoll); err != nil {
			return fmt.Errorf("waiting for PostgreSQL in %s: %w; after a crash it recovers first, see %s", h.place.data(), err, h.place.log())
		}
	}
}

// ensureDatabase connects as scrip, and creates the database if it is missing. again is true if a later try may succeed. It
// connects to database postgres only to create its own: an administrator may have closed or dropped that one.
func ensureDatabase(ctx context.Context, password string, port int) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	conn, err := pgx.Connect(ctx, databaseURL(password, port, roleName))
	if err == nil {
		_ = conn.Close(ctx)
		return false, nil
	}
	var pg *pgconn.PgError
	switch {
	case !errors.As(err, &pg):
		return true, err
	case pg.Code == sqlInvalidPassword:
		return false, fmt.Errorf("PostgreSQL refuses the stored password of role %s: remove the file named password beside its "+
			"data directory and start again, a new one is then set: %w", roleName, err)
	case pg.Code != sqlNoDatabase:
		return true, err
	}
	if conn, err = pgx.Connect(ctx, databaseURL(password, port, "postgres")); err != nil {
		return true, fmt.Errorf("connecting to database postgres to create %s: %w", roleName, err)
	}
	defer conn.Close(ctx)
	// Here and not with the cluster: after a crash between the two it is made at the next start.
	for _, sql := range []string{"CREATE DATABASE " + roleName + " OWNER " + roleName, "REVOKE TEMPORARY ON DATABASE " + roleName + " FROM PUBLIC"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return false, fmt.Errorf("creating database %s: %w%s", roleName, err, spaceHint(err.Error()))
		}
	}
	return false, nil
}
