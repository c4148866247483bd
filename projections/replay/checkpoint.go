package replay

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-4a2410e3/scrip/projections/confine"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Whether the schema exists, whether a replay made it (it then has a checkpoint table), its owner, and this role's
// rights. Reads only the catalog, which needs no grants.
//
// $1 = schema
const lookSQL = `
SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1),
       EXISTS (SELECT FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace WHERE s.nspname = $1 AND c.relname = 'scrip_checkpoint'),
       coalesce((SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = $1), ''),
       coalesce((SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = $1), true),
       has_database_privilege(current_database(), 'CREATE'), has_database_privilege(current_database(), 'TEMPORARY'), current_database()`

// Two replays that reset tables do it one after the other. It excludes itself, and none of what readers may take.
const resetLockSQL = `LOCK TABLE %s.scrip_replay IN SHARE UPDATE EXCLUSIVE MODE`

// errMadeMeanwhile: another replay of this name made the schema or its tables. The unique indexes of the catalog let one do it.
var errMadeMeanwhile = errors.New("another replay of this name has started at the same time")

const checkpointTablesSQL = `
CREATE TABLE scrip_replay (
	version      text NOT NULL,
	fold_version text NOT NULL,
	filter       text NOT NULL,
	created_at   timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE scrip_checkpoint (
	lane       integer PRIMARY KEY,
	log        text NOT NULL,
	sequence   bigint NOT NULL,
	digest     text NOT NULL,
	log_time   timestamptz,
	updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	CONSTRAINT place_has_digest CHECK ((sequence = 0) = (digest = ''))
)`

// The fence: no row is updated unless the checkpoint is at the position that this replay last committed.
//
// $1 = lane   $2, $3, $4 = sequence, digest and lane time of the new position   $5, $6, $7 = log, sequence and digest of
// the old one
const advanceSQL = `
UPDATE scrip_checkpoint SET sequence = $2, digest = $3, log_time = $4, updated_at = clock_timestamp()
WHERE lane = $1 AND log = $5 AND sequence = $6 AND digest = $7`

// ensure creates the schema, or checks that the existing one has the same definition and filter, and reads its
// checkpoints.
func (p *projection) ensure(ctx context.Context, log topology.Log, f *Filter) (err error) {
	for range 3 {
		if err = p.tryEnsure(ctx, log, f); !errors.Is(err, errMadeMeanwhile) {
			break
		}
	}
	return err
}

func (p *projection) tryEnsure(ctx context.Context, log topology.Log, f *Filter) error {
	tx, err := p.conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // nothing to do after a commit
	var there, ours, mayUse, mayCreate, mayTemp bool
	var owner, database string
	if err := tx.QueryRow(ctx, lookSQL, p.Name).Scan(&there, &ours, &owner, &mayUse, &mayCreate, &mayTemp, &database); err != nil {
		return err
	}
	switch {
	case there && !ours && !(p.confined && owner == p.role): // its own role's schema is made before its tables
		return invalid("name", "schema %s exists and no replay made it; give another name, or remove that schema", p.Name)
	case !mayUse:
		return fmt.Errorf("schema %s belongs to role %s, and role %s is not a member of it; run: GRANT %s TO %s, or give another name", p.Name, owner, p.role, quote(owner), quote(p.role))
	case !mayTemp:
		return fmt.Errorf("role %s may not make temporary tables; run: GRANT TEMPORARY ON DATABASE %s TO %s", p.role, quote(database), quote(p.role))
	case !there && !mayCreate:
		return fmt.Errorf("role %s may not make a schema; run: GRANT CREATE ON DATABASE %s TO %s", p.role, quote(database), quote(p.role))
	}
	if ours && p.reset {
		if _, err := tx.Exec(ctx, fmt.Sprintf(resetLockSQL, p.schema())); err != nil {
			return err
		}
	}
	if there && p.reset {
		if _, err := tx.Exec(ctx, confine.Empty(p.Name)); err != nil {
			return err
		}
	}
	if !there {
		if err := made(tx.Exec(ctx, "CREATE SCHEMA "+p.schema())); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, "SET LOCAL search_path = "+p.schema()); err != nil {
		return err
	}
	if ours && !p.reset {
		err = p.compare(ctx, tx, f)
	} else {
		err = p.create(ctx, tx, f)
	}
	if err != nil {
		return err
	}
	if err := p.load(ctx, tx, log); err != nil {
		return err
	}
	if p.share {
		if err := confine.Share(ctx, tx, p.Name, p.readers); err != nil {
			return err
		}
	}
	return tx.Commit(ctx)
}

// made is the error of making an object.
func made(_ pgconn.CommandTag, err error) error {
	if schema.Exists(err) {
		return fmt.Errorf("%w: %w", errMadeMeanwhile, err)
	}
	return err
}

// create creates the checkpoint tables, then those of the definition. It is part of one transaction: if Create fails,
// no table remains.
func (p *projection) create(ctx context.Context, tx pgx.Tx, f *Filter) error {
	if err := made(tx.Exec(ctx, checkpointTablesSQL)); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "INSERT INTO scrip_replay (version, fold_version, filter) VALUES ($1, $2, $3)", p.Version, p.FoldVersion, f.String()); err != nil {
		return err
	}
	if p.Create != nil {
		return p.Create(ctx, tx)
	}
	return nil
}

// compare returns an error if the tables were made by another definition or under another filter.
func (p *projection) compare(ctx context.Context, tx pgx.Tx, f *Filter) error {
	var version, fold, filter string
	if err := tx.QueryRow(ctx, "SELECT version, fold_version, filter FROM scrip_replay").Scan(&version, &fold, &filter); err != nil {
		return err
	}
	switch {
	case version != p.Version:
		return invalid("name", "the tables of schema %s were made by another definition than this one; restore it, give another name, or --reset to create and fill the tables again", p.Name)
	case filter != f.String():
		return filterChanged("schema "+p.Name, filter, f.String())
	case fold == p.FoldVersion:
		return nil
	}
	// A fold that failed on an event may be corrected; it continues with the same tables.
	_, err := tx.Exec(ctx, "UPDATE scrip_replay SET fold_version = $1", p.FoldVersion)
	return err
}

// load reads the checkpoints. A lane without one gets a checkpoint before its first message.
func (p *projection) load(ctx context.Context, tx pgx.Tx, log topology.Log) error {
	if _, err := tx.Exec(ctx, `INSERT INTO scrip_checkpoint (lane, log, sequence, digest)
		SELECT n, $2, 0, '' FROM generate_series(0, $1::int - 1) n ON CONFLICT (lane) DO NOTHING`, log.Lanes, log.UUID); err != nil {
		return err
	}
	rows, _ := tx.Query(ctx, "SELECT lane, log, sequence, digest FROM scrip_checkpoint") // its error is that of the rows
	p.at = map[int]eventlog.Position{}
	var at eventlog.Position
	_, err := pgx.ForEachRow(rows, []any{&at.Lane, &at.Log, &at.Sequence, &at.Digest}, func() error {
		p.at[at.Lane] = at
		return nil
	})
	if err != nil {
		return err
	}
	for _, at := range p.at {
		if at.Log != log.UUID {
			return explainPosition(at, fmt.Errorf("the checkpoint is of log %s, this is log %s: %w", at.Log, log.UUID, eventlog.ErrDiverged))
		}
	}
	return nil
}

// advance moves a lane's checkpoint to the end of a batch.
func (p *projection) advance(ctx context.Context, tx pgx.Tx, b *Batch) error {
	from := p.at[b.To.Lane]
	tag, err := tx.Exec(ctx, advanceSQL, b.To.Lane, int64(b.To.Sequence), b.To.Digest, b.Clock.Time(), from.Log, int64(from.Sequence), from.Digest)
	if err != nil {
		return err
	}
	if tag.RowsAffected() != 1 {
		return errFenced
	}
	return nil
}
