package rebuild

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// reading opens a transaction that has read a relation and does nothing more, as pg_dump or a forgotten session.
func (r *rig) reading(relation string) (end func()) {
	r.T.Helper()
	tx, err := r.Pool.Begin(r.T.Context())
	streamtest.Must(r.T, err)
	end = func() { _ = tx.Rollback(context.Background()) }
	r.T.Cleanup(end)
	if _, err := tx.Exec(r.T.Context(), r.on("SELECT count(*) FROM "+relation)); err != nil {
		r.T.Fatal(err)
	}
	return end
}

// A reader holds locks on the previous tables and on those being filled. Neither a rebuild nor the live tables wait for
// it.
func TestReadersDelayNoRebuild(t *testing.T) {
	r := filled(t)
	r.rebuild(Options{})
	end := r.reading("previous.coupon_row")
	got := r.rebuild(Options{})
	if notes := strings.Join(got.Notes, " "); !strings.Contains(notes, "drops them: schema scrip_1") {
		t.Errorf("notes %q", notes)
	}
	streamtest.Equal(t, "schemas", r.schemas(), "scrip previous and scrip_1")
	r.synced()
	streamtest.Equal(t, "tables are not the fold of the log", r.digest(), r.folded())
	end()
	s := r.open(Options{})
	streamtest.Equal(t, "opened after the reader has ended: schemas", r.schemas(), "scrip previous")
	s.Close()

	// What a failed run leaves is read, too.
	broken := errors.New("broken")
	s = r.open(Options{Hook: func(p Phase) error {
		if p != Indexing {
			return nil
		}
		end = r.reading("scrip_4.coupon_row")
		return broken
	}})
	if _, err := s.Rebuild(t.Context()); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	s.Close()
	r.open(Options{}).Close()
	r.rebuild(Options{})
	end()
	r.open(Options{}).Close()
	streamtest.Equal(t, "schemas", r.schemas(), "scrip previous")
}
