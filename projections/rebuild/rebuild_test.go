package rebuild

import (
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// Damaged tables are exchanged for right ones while the projector works, which goes on in the new ones; undo brings the
// damaged ones back, and they are caught up.
func TestRebuildUndoDrop(t *testing.T) {
	r := filled(t)
	right := r.digest()
	if want := r.folded(); right != want {
		t.Fatalf("live tables are not the fold of the log:\n%s%s", right, want)
	}
	r.exec("DELETE FROM live.coupon_claim WHERE n = 3")
	r.exec("UPDATE scrip_tables.campaign SET claimed = 77 WHERE campaign = 'c1'")
	// Checkpoints of other projections, whose tables lie elsewhere, are not lost.
	r.exec("INSERT INTO scrip_tables.checkpoint (projection, lane, sequence, updated_at, log, digest) VALUES ('daily', 0, 3, now(), 'l', 'd')")
	got := r.rebuild(Options{})
	if r.digest() != right {
		t.Errorf("the rebuilt tables differ:\n%s%s", r.digest(), right)
	}
	analyzed := r.text("SELECT (reltuples > 0)::text FROM pg_class WHERE oid = 'live.coupon_claim'::regclass")
	streamtest.Equal(t, "the segments were analyzed together", analyzed, "true")
	if got.NotCompared != "" || len(got.Tables) == 0 {
		t.Errorf("not compared: %s", got.NotCompared)
	}
	for _, table := range got.Tables {
		if damaged := table.Table == "coupon_row" || table.Table == "campaign"; table.Equal == damaged {
			t.Errorf("%+v: Equal() = %t", table, table.Equal)
		}
	}
	r.Claim(0, 4)
	r.Claim(1, 4)
	r.synced()
	if want := r.folded(); r.digest() != want {
		t.Errorf("the projector does not go on in the new tables:\n%s%s", r.digest(), want)
	}
	streamtest.Equal(t, "schemas", r.schemas(), "scrip previous")

	s := r.open(Options{})
	defer s.Close()
	r.exec("UPDATE scrip_tables.checkpoint SET sequence = 5 WHERE projection = 'daily'")
	if err := s.Undo(t.Context()); err != nil {
		t.Fatal(err)
	}
	streamtest.Equal(t, "the other projection is at", r.text("SELECT sequence::text FROM scrip.checkpoint WHERE projection = 'daily'"), "5")
	r.Claim(0, 1)
	r.Claim(1, 1)
	r.synced()
	streamtest.Equal(t, "coupons claimed after undo", r.text("SELECT claimed::text FROM scrip.campaign WHERE campaign = 'c1'"), "82")
	if err := s.Undo(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Claim(0, 1)
	r.Claim(1, 1)
	r.synced()
	if want := r.folded(); r.digest() != want {
		t.Errorf("undone twice, tables differ:\n%s%s", r.digest(), want)
	}
	if dropped, err := s.DropPrevious(t.Context()); err != nil || !dropped {
		t.Errorf("previous tables dropped: %t, %v", dropped, err)
	}
	streamtest.Equal(t, "schemas", r.schemas(), "scrip")
}
