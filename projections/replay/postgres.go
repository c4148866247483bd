package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-4a2410e3/scrip/projections/confine"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Definition is a projection of events into PostgreSQL: its tables, and how a batch is folded into them.
type Definition struct {
	// Name is the projection's own schema: 1 to 60 of a-z 0-9 _, starting with a letter.
	Name string
	// Version identifies what Create makes. A replay does not continue with tables of another version; with reset it
	// creates them again.
	Version string
	// FoldVersion identifies what Fold does. A replay with another one continues with the same tables and stores it.
	FoldVersion string
	// Create creates the tables, once, in a transaction whose search_path is the schema.
	Create func(ctx context.Context, tx pgx.Tx) error
	// Fold adds a batch of at least one event, in the transaction that moves the checkpoint; its search_path is the
	// schema. The result must not depend on where batches are cut. Fold is never called concurrently.
	Fold func(ctx context.Context, tx pgx.Tx, b *Batch) error

	// check, if not nil, validates the definition before anything is created.
	check func(ctx context.Context, conn *pgx.Conn) error
	// share: these readers of package confine may read the schema, and no others of them.
	share   bool
	readers []string
}

// BatchError reports at which messages folding failed. The batch was rolled back, earlier batches are committed, and
// the next run continues with this batch.
type BatchError struct {
	Name        string // of the projection
	Lane        int
	First, Last uint64 // message sequences
	Err         error
}

func (e *BatchError) Error() string {
	return fmt.Sprintf("folding messages %d to %d of lane %d into %s: %s; the batch was rolled back, earlier ones are committed: correct the cause and run it again, it continues there",
		e.First, e.Last, e.Lane, e.Name, e.Err)
}

func (e *BatchError) Unwrap() error { return e.Err }

// closeWait bounds closing a connection.
const closeWait = 5 * time.Second

// errFenced: another process moved a checkpoint.
var errFenced = errors.New("its checkpoint was moved by another replay of this name; stop one of them")

// Postgres is a sink that keeps a projection in the database at url, checkpoint and rows in one transaction. It
// continues at its checkpoint; reset empties the schema first, once. The projection logs in as a role of its own, which
// owns the schema and may read schema scrip, and nothing else; see package confine. url's role makes that role and is a
// member of it.
//
// Two that run at once cannot apply an event twice: a checkpoint advances only from the position that its writer last
// committed.
func Postgres(url string, d Definition, reset bool) Sink {
	return &projection{Definition: d, url: url, reset: reset}
}

type projection struct {
	Definition
	url   string
	reset bool

	conn     *pgx.Conn
	role     string                    // owner of the connection that writes the schema
	confined bool                      // the role belongs to this projection alone
	at       map[int]eventlog.Position // as committed in the schema
}

// schema returns the quoted name.
func (p *projection) schema() string { return pgx.Identifier{p.Name}.Sanitize() }

func (p *projection) Begin(ctx context.Context, log topology.Log, f *Filter) (map[int]eventlog.Position, error) {
	if err := checkName(p.Name); err != nil {
		return nil, err
	}
	if schema.Reserved(p.Name) {
		return nil, invalid("name", "schema %s is reserved; give another name", p.Name)
	}
	if err := p.open(ctx); err != nil {
		return nil, unavailable(fmt.Errorf("projection %s: %w", p.Name, err))
	}
	if err := p.prepare(ctx, log, f); err != nil {
		goodbye(ctx, p.conn)
		return nil, unavailable(fmt.Errorf("preparing schema %s: %w", p.Name, p.grants(err)))
	}
	p.reset = false
	positions := make(map[int]eventlog.Position, len(p.at))
	for lane, at := range p.at {
		if at.Sequence != 0 {
			positions[lane] = at
		}
	}
	return positions, nil
}

// open connects as the projection's own role, or, if the role of the URL cannot create roles, as that role.
func (p *projection) open(ctx context.Context) error {
	p.conn = nil
	config, err := pgx.ParseConfig(p.url)
	if err != nil {
		return fmt.Errorf("the URL of PostgreSQL: %w", err)
	}
	schema.Pin(config) // each transaction sets search_path for the projection's own statements
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connecting to the database: %w", err)
	}
	if p.check != nil {
		err = p.check(ctx, conn)
	}
	if err == nil {
		// The role has a session of its own: no statement of the projection can return to another role.
		p.conn, err = confine.Open(ctx, conn, config, p.Name)
	}
	if p.confined = p.conn != nil; err == nil && !p.confined {
		p.conn, conn = conn, nil
	}
	if conn != nil {
		goodbye(ctx, conn)
	}
	return err
}

func (p *projection) prepare(ctx context.Context, log topology.Log, f *Filter) error {
	if err := p.conn.QueryRow(ctx, "SELECT current_user").Scan(&p.role); err != nil {
		return err
	}
	err := p.ensure(ctx, log, f)
	if err != nil && p.confined {
		// confine.Open has just created it if it is empty; otherwise dropping it is rejected.
		_, _ = p.conn.Exec(context.WithoutCancel(ctx), "DROP SCHEMA IF EXISTS "+p.schema()+" RESTRICT")
	}
	return err
}

// Write folds a batch.
func (p *projection) Write(ctx context.Context, b *Batch) error {
	if err := p.commit(ctx, b); err != nil {
		return &BatchError{Name: p.Name, Lane: b.Lane, First: b.First, Last: b.Last, Err: unavailable(p.grants(err))}
	}
	return nil
}

func (p *projection) commit(ctx context.Context, b *Batch) error {
	tx, err := p.conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: p.beginSQL()})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // nothing to do after a commit
	// First, so that a replay that is fenced off folds nothing.
	if err := p.advance(ctx, tx, b); err != nil {
		return err
	}
	if len(b.Events) > 0 {
		if err := p.Fold(ctx, tx, b); err != nil {
			return err
		}
	}
	// If no reply arrives, the next Begin reads from the checkpoint whether it was committed.
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	p.at[b.To.Lane] = b.To
	return nil
}

// beginSQL: a commit that PostgreSQL loses in a crash is folded again from the log.
func (p *projection) beginSQL() string {
	return "BEGIN; SET LOCAL synchronous_commit = off; SET LOCAL search_path = " + p.schema()
}

func (p *projection) Flush(context.Context) error { return nil }

func (p *projection) End(ctx context.Context, _ error) error {
	goodbye(ctx, p.conn)
	return nil
}

// goodbye closes a connection, which rolls back what was not committed.
func goodbye(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWait)
	defer cancel()
	_ = conn.Close(ctx)
}

// insufficientPrivilege is SQLSTATE insufficient_privilege.
const insufficientPrivilege = "42501"

// deniedPattern parses PostgreSQL's message about a missing right. If the server's language is not English, the hint is
// a general one.
var deniedPattern = regexp.MustCompile(`^permission denied for (database|schema|table|view|materialized view|sequence|function|relation|foreign table) (\S+)$`)

// rightsOf has the right to grant by kind of object; for tables and views it is SELECT.
var rightsOf = map[string]string{"database": "CREATE", "schema": "USAGE", "sequence": "USAGE", "function": "EXECUTE"}

// grants adds to an error about a missing right the GRANT that would help. PostgreSQL does not report which right to a
// table is missing; a projection may only be granted SELECT.
func (p *projection) grants(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != insufficientPrivilege {
		return err
	}
	found := deniedPattern.FindStringSubmatch(pg.Message)
	own := fmt.Sprintf("a projection writes to its own schema %s only, where names without a schema are looked up", p.Name)
	if found == nil {
		return fmt.Errorf("%w; %s; it runs as role %s", err, own, p.role)
	}
	kind, name, right := strings.ToUpper(found[1]), found[2], rightsOf[found[1]]
	if right == "" {
		kind, right = "TABLE", "SELECT" // GRANT calls views tables, too
	}
	return fmt.Errorf("%w; %s; to let it read or use other objects run: GRANT %s ON %s %s TO %s", err, own, right, kind, quote(name), quote(p.role))
}

var plainIdentifier = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// quote quotes an identifier only if necessary.
func quote(name string) string {
	if plainIdentifier.MatchString(name) {
		return name
	}
	return pgx.Identifier{name}.Sanitize()
}

// unavailableError is an error of the projection's database, not of the log: it is unavailable, starting or stopping. A
// retry may succeed.
type unavailableError struct{ error }

func (e *unavailableError) Unwrap() error { return e.error }

// unavailable makes an unavailableError of such errors and returns others unchanged.
func unavailable(err error) error {
	var network net.Error
	var connect *pgconn.ConnectError
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case schema.State(err) != "":
		// 08 is a connection error; 57P01 to 57P03: the server is stopping, was killed, or is starting.
		if state := schema.State(err); !strings.HasPrefix(state, "08") && !strings.HasPrefix(state, "57P0") {
			return err
		}
	case errors.As(err, &network), errors.As(err, &connect), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, net.ErrClosed), strings.Contains(err.Error(), "conn closed"):
	default:
		return err
	}
	return &unavailableError{err}
}

func isUnavailable(err error) bool {
	var e *unavailableError
	return errors.As(err, &e)
}
