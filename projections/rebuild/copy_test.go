package rebuild

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
)

// digestOf is the content of the tables in a schema, by its own function, which looks at itself.
func (r *rig) digestOf(schema string) string {
	r.T.Helper()
	return r.text(`SELECT string_agg(concat_ws(' ', relation, row_count, digest), E'\n' ORDER BY relation) FROM ` + schema + `.digest()`)
}

// A copy as of a time is what the live tables were then, at any position in the log. Where the time lies inside a message, its
// lines until then are in it. The live tables do not change.
func TestPointInTimeCopies(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.project()
	want := map[wire.Instant]string{} // digests of the live tables
	step := func(change func()) {
		change()
		r.synced()
		want[wire.At(r.Clock)] = r.digestOf("scrip")
	}
	step(func() {
		for lane := range lanes {
			r.Write(lane, projtest.Created(fmt.Sprintf("c%d", lane), lane, `,"expires_at":"2026-06-01T00:00:00Z"`))
		}
	})
	step(func() { r.Claim(0, 3); r.Claim(1, 2) })
	step(func() {
		r.Write(0, `{"type":"coupon.redeemed","campaign":"c0","at":"@","n":1,"code":"x","order_id":"o","redeemed_count":1}`)
	})
	step(func() { r.Claim(1, 1) })
	// One message whose lines are of several times.
	at := wire.At(r.Clock)
	var payload []byte
	for range 5 {
		r.Claims[0]++
		at = at.Add(time.Second)
		payload = append(projtest.Claimed("c0", r.Claims[0], at).AppendJSON(payload), '\n')
	}
	r.Clock = at.Time()
	r.Publish(0, r.Header(0), payload)
	want[at.Add(-3*time.Second)], want[at.Add(-2500*time.Millisecond)] = "", ""
	r.Claim(0, 2)
	r.synced()
	want[0] = r.digestOf("scrip") // now

	s := r.open(Options{})
	defer s.Close()
	for until, digest := range want {
		name, asOf := fmt.Sprintf("copy_%d", until), time.Time{}
		if until != 0 {
			asOf = until.Time()
		}
		if _, err := s.Copy(t.Context(), name, asOf); err != nil {
			t.Fatalf("as of %s: %v", until, err)
		}
		if got := r.digestOf(name); digest != "" && got != digest {
			t.Errorf("as of %s:\n%s\nthe live tables were\n%s", until, got, digest)
		}
		if digest == "" {
			n := r.text(fmt.Sprintf(`SELECT count(*)::text FROM %s_rows.coupon_row`, name))
			if live := r.text("SELECT count(*)::text FROM scrip_tables.coupon_row WHERE claimed_at <= $1", asOf); n != live {
				t.Errorf("as of %s there are %s coupons, want %s", until, n, live)
			}
		}
	}
	if r.digestOf("scrip") != want[0] || r.schemas() != "scrip" {
		t.Errorf("the live tables changed, or schemas are left: %s", strings.TrimSpace(r.schemas()))
	}
}

// A copy that is ended leaves nothing.
func TestCopyEnded(t *testing.T) {
	r := filled(t)
	for _, at := range []Phase{Loading, Indexing} {
		ctx, cancel := context.WithCancel(t.Context())
		s := r.open(Options{Hook: func(p Phase) error {
			if p == at {
				cancel()
			}
			return nil
		}})
		_, err := s.Copy(ctx, "ended", time.Time{})
		s.Close()
		if err == nil {
			t.Errorf("%s: no error", at)
		}
		if n := r.text("SELECT count(*)::text FROM pg_namespace WHERE nspname LIKE 'ended%'"); n != "0" || r.schemas() != "scrip" {
			t.Errorf("%s: %s schemas of it, or others, are left", at, n)
		}
	}
}
