package confine

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/streams/access"
)

// Late closes, unless it was closed before, and drops a role as a round does that has judged it some time ago.
func Late(ctx context.Context, conn *pgx.Conn, function bool, wanted []access.Login, role string, closed bool) error {
	r := newRound(wanted)
	r.conn, r.function = conn, function
	var err error
	if !closed {
		err = r.set(ctx, r.revoked(role, false))
	}
	return errors.Join(err, r.drop(ctx, []string{role}))
}

// Sooner is the guard, for a superuser, with other bounds, such as "5min" by "1ms".
func Sooner(bounds ...string) string {
	return strings.NewReplacer(bounds...).Replace(filled(guardSQL, true, "$1::jsonb", "$2::boolean"))
}

// Kept are the functions that everybody may execute.
func Kept() []string { return kept() }
