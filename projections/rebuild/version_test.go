package rebuild

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/projections/projector"
	"github.com/seed-4a2410e3/scrip/projections/schema"
)

// older makes the live tables what a scrip of migration 6 left.
func (r *rig) older() {
	r.T.Helper()
	r.exec("DROP FUNCTION scrip.due_next_hour(), scrip.backlog()")
	r.exec("DROP TABLE scrip.expiry_event, scrip.coupon_event")
	r.exec("DROP INDEX scrip.redemption_order")
	r.exec("ALTER TABLE scrip.reminder DROP COLUMN set_place, DROP COLUMN settled_place")
	r.exec("ALTER TABLE scrip.coupon_row DROP COLUMN claimed_place")
	r.exec("DELETE FROM scrip_meta.migration WHERE version_id >= 7")
}

// Tables of an older scrip are neither read nor migrated; only a rebuild replaces them, while no projector needs them
// as they are.
func TestTablesOfAnOlderVersion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	stop := r.project()
	r.Work()
	r.synced()
	want := r.digest()
	stop()
	r.older()
	look := func() string {
		return r.text(`SELECT concat_ws(' ', (SELECT count(*) FROM scrip.coupon_row), (SELECT sum(sequence) FROM scrip.checkpoint), (SELECT max(version_id) FROM scrip_meta.migration))`)
	}
	before := look()
	s := r.open(Options{})
	defer s.Close()
	both := fmt.Sprintf("the read tables have migration 6, this program needs migration %d", schema.Version())
	_, undo := s.Undo(t.Context())
	_, drop := s.DropPrevious(t.Context())
	for what, err := range map[string]error{"check": sameVersion(t.Context(), s.pool), "undo": undo, "drop": drop} {
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), both) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := s.Copy(t.Context(), "beside", time.Time{}); err != nil {
		t.Errorf("a copy touches no live table: %v", err)
	}

	conn, err := r.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), fmt.Sprintf("SELECT pg_advisory_lock(%d)", projector.Lock)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Rebuild(t.Context()); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "a projector of the former version is running") {
		t.Errorf("rebuilding under a projector of the older version: %v", err)
	}
	if after := look(); after != before {
		t.Errorf("rows, checkpoints and migration were %s, are %s", before, after)
	}
	if _, err := conn.Exec(t.Context(), "SELECT pg_advisory_unlock_all()"); err != nil {
		t.Fatal(err)
	}
	got, err := s.Rebuild(t.Context())
	if err != nil || !strings.Contains(got.NotCompared, "had migration 6") {
		t.Fatalf("rebuilding: %+v, %v", got, err)
	}
	if r.digest() != want {
		t.Errorf("rebuilt:\n%swant\n%s", r.digest(), want)
	}
	if _, err := s.Undo(t.Context()); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "have migration 6") {
		t.Errorf("undo to older tables: %v", err)
	}
	r.project() // takes them for migrated ones
	r.Claim(0, 1)
	r.Claim(1, 1)
	r.synced()
	if got, want := r.digest(), r.folded(); got != want {
		t.Errorf("the projector does not go on:\n%swant\n%s", got, want)
	}
}

func TestTablesOfANewerVersion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.rebuild(Options{})
	r.exec("INSERT INTO scrip_meta.migration (version_id, is_applied) VALUES (99, true)")
	s := r.open(Options{})
	defer s.Close()
	_, rebuild := s.Rebuild(t.Context())
	for what, err := range map[string]error{"check": sameVersion(t.Context(), s.pool), "rebuild": rebuild} {
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), fmt.Sprintf("have migration 99, this program knows migrations up to %d", schema.Version())) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
