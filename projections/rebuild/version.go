package rebuild

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/projector"
	"github.com/seed-4a2410e3/scrip/projections/schema"
)

// rower is the common interface of a pool, a connection and a transaction.
type rower interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// CheckVersion returns an error if the tables have another version than this program: a projector of that version uses
// them, and comparing them with this program's migrations would find differences everywhere.
func (s *Session) CheckVersion(ctx context.Context) error { return sameVersion(ctx, s.pool) }

// sameVersion is CheckVersion for a transaction: the tables may have been migrated meanwhile.
func sameVersion(ctx context.Context, db rower) error {
	version, err := schema.Applied(ctx, db)
	switch mine := schema.Version(); {
	case err != nil:
		return err
	case version == 0:
		return refuse("there are no read tables in this database; `scrip serve` or `scrip rebuild` creates them")
	case version < mine:
		return refuse("the read tables have migration %d, this program needs migration %d, and migrating them here would stop the projector of their version; "+
			"use the scrip that the server runs, or upgrade the server, which migrates them when it starts", version, mine)
	case version > mine:
		return newer(version)
	}
	return nil
}

func newer(version int64) error {
	return refuse("the read tables have migration %d, this program knows migrations up to %d; use the scrip that made them", version, schema.Version())
}

// replaceable returns the migration of the live tables, or an error if they must not be replaced. Older ones may be
// replaced while no projector is running: a projector of their version would stop permanently on tables of this
// version.
func replaceable(ctx context.Context, db rower) (version int64, err error) {
	version, err = schema.Applied(ctx, db)
	switch {
	case err != nil:
		return 0, err
	case version > schema.Version():
		return 0, newer(version)
	case version == schema.Version() || version == 0:
		return version, nil
	}
	who, found, err := holder(ctx, db, projector.Lock)
	if err == nil && found {
		err = refuse("the read tables have migration %d, the rebuilt ones would have migration %d, and a projector of the former version is running (%s); "+
			"use the scrip that the server runs, or upgrade the server first", version, schema.Version(), who)
	}
	return version, err
}
