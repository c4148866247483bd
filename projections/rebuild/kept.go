package rebuild

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/room"
)

// What an exchange that did not happen leaves to the next rebuild: tables that took hours to fill. They are marked from
// the moment they are filled, so that they outlive a crash, too. They are forgotten when the failure was theirs, or
// they are of no use any more.

// kept opens the tables that an earlier rebuild has filled, and fills them to the current end of the log; nil if there
// are none that can be filled on.
func (s *Session) kept(ctx context.Context, r *Result) (*shadow, error) {
	name := s.now.Kept
	if name == "" {
		return nil, nil
	}
	err := s.inLog(ctx, "the tables that an earlier rebuild has filled", name)
	if errors.Is(err, ErrRefused) {
		s.opts.Logger.WarnContext(ctx, "the tables that an earlier rebuild has filled are dropped; it begins from the start", "schema", name, "err", err)
		return nil, s.forget(ctx, name)
	}
	if err != nil {
		return nil, err
	}
	ends, err := s.ends(ctx)
	if err != nil {
		return nil, err
	}
	if err := fill.Fence(ctx, s.pool, name, s.log.UUID, s.log.Lanes); err != nil { // a former session may not have noticed yet that it lost the lock
		return nil, err
	}
	sh, err := s.newShadow(ctx, name, selection{}, false)
	if err != nil {
		return nil, s.keepOrForget(ctx, name, err)
	}
	if err := sh.load(ctx, ends, r); err != nil {
		return nil, s.keepOrForget(ctx, name, err)
	}
	r.Notes = append(r.Notes, "it went on with the tables that an earlier rebuild had filled, and did not exchange")
	return sh, nil
}

// keepOrForget adds to an error that the filled tables are kept, or forgets them if it may be theirs.
func (s *Session) keepOrForget(ctx context.Context, name string, err error) error {
	background, done := context.WithTimeout(context.WithoutCancel(ctx), closeFor)
	defer done()
	if !blameless(err) || !blameless(context.Cause(ctx)) {
		// If this fails too, the next rebuild finds out.
		if forgetting := s.forget(background, name); forgetting != nil {
			s.opts.Logger.WarnContext(ctx, "the filled tables were not forgotten", "schema", name, "err", forgetting)
		}
		return err
	}
	// They may be in use: the answer to a commit may be lost.
	if now, reading := schema.Current(background, s.pool); reading != nil || now.Kept != name {
		return err
	}
	return fmt.Errorf("%w; the filled tables are kept (schema %s): the next `scrip rebuild` goes on with them, and `scrip rebuild --drop-previous` drops them", err, name)
}

// blameless reports whether an error says nothing about the filled tables, and they take no room that is missing.
func blameless(err error) bool {
	if errors.Is(err, room.ErrFull) || errors.Is(err, fill.ErrFenced) || fill.IsLost(err) {
		return false
	}
	state := schema.State(err)
	return state == "" || schema.Blocked(err) || unavailable(err) && state != "53100" // disk_full
}

// forget makes tables leftovers, and drops them.
func (s *Session) forget(ctx context.Context, name string) error {
	if err := s.mark(ctx, func(tx pgx.Tx) error { return schema.Forget(ctx, tx, name) }); err != nil {
		return err
	}
	_, err := s.dropLeftovers(ctx)
	return err
}

// mark runs a statement on the connection that has the lock of rebuilds: no other session marks anything.
func (s *Session) mark(ctx context.Context, f func(tx pgx.Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return pgx.BeginFunc(context.WithoutCancel(ctx), s.conn, f)
}

// changeable returns an error of kind ErrRefused if an exchange would fail for the rights of the role.
func (s *Session) changeable(ctx context.Context) error {
	mend, err := schema.Foreign(ctx, s.pool, s.now.Live)
	if err == nil && len(mend) > 0 {
		return refuse("role %s cannot exchange the read tables, since it does not own all that is replaced; run this as a superuser, then try again: %s", s.owner, strings.Join(mend, "; "))
	}
	return err
}
