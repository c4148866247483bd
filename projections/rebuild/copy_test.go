package rebuild

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// naive folds the log up to a time the naive way, with a map and no rule of the tables' own, and lists the coupons as
// the contract's relation shows them.
func (r *rig) naive(until wire.Instant) []string {
	r.T.Helper()
	type coupon struct {
		customer  string
		own       wire.Instant
		uses      uint32
		void      bool
		claimedAt wire.Instant
	}
	type campaign struct {
		settings wire.Settings
		through  wire.Instant
		coupons  map[uint32]*coupon
	}
	campaigns := map[string]*campaign{}
	apply := func(e *wire.Event) {
		if e.Type == wire.CampaignCreated {
			campaigns[e.Campaign] = &campaign{settings: e.Settings, coupons: map[uint32]*coupon{}}
		}
		c := campaigns[e.Campaign]
		if c == nil {
			return
		}
		if e.Type == wire.CouponClaimed {
			c.coupons[e.N] = &coupon{customer: e.CustomerID, own: e.ExpiresAt, claimedAt: e.At}
		}
		k := c.coupons[e.N]
		switch e.Type {
		case wire.CouponRedeemed, wire.CouponRolledBack:
			k.uses = e.RedeemedCount
		case wire.CouponVoided:
			if k != nil {
				k.void = true
			}
		case wire.CouponExtended:
			k.own = e.ExpiresAt
		case wire.CouponsExpired:
			c.through = e.Through
		}
	}
	for lane := range lanes {
		reader, err := eventlog.Events(r.JS, lane).Open(context.Background(), r.Log.UUID, eventlog.Position{Log: r.Log.UUID, Lane: lane}, eventlog.ReaderOptions{Logger: quiet})
		if err != nil {
			r.T.Fatal(err)
		}
		err = reader.CatchUp(context.Background(), func(batch []eventlog.Message) error {
			for _, m := range batch {
				for _, line := range eventlog.Lines(m.Payload) {
					var e wire.Event
					if err := wire.ParseEvent(line, &e); err != nil {
						return err
					}
					if e.At <= until {
						apply(&e)
					}
				}
			}
			return nil
		})
		reader.Close()
		if err != nil {
			r.T.Fatal(err)
		}
	}
	var list []string
	for name, c := range campaigns {
		for n, k := range c.coupons {
			expires := k.own
			if expires == 0 {
				expires = c.settings.ExpiresAt
			}
			status := "claimed"
			switch {
			case k.void:
				status = "voided"
			case k.uses >= c.settings.MaxRedemptions:
				status = "redeemed"
			case expires <= c.through:
				status = "expired"
			}
			list = append(list, fmt.Sprintf("%s/%d %s %s %d %d", name, n, k.customer, status, k.uses, k.claimedAt))
		}
	}
	sort.Strings(list)
	return list
}

// A copy as of a time agrees with a naive fold up to that time, at any position in the log, also inside a message; the
// live tables do not change.
func TestPointInTimeCopies(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.project()
	begin := wire.At(r.Clock)
	r.Work()
	r.synced()
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
	r.Claim(0, 2)
	r.synced()
	want := r.digest()
	s := r.open(Options{})
	defer s.Close()
	for i, until := range []wire.Instant{
		begin, begin.Add(2 * time.Second), begin.Add(5 * time.Second), begin.Add(20 * time.Second), begin.Add(4 * time.Hour),
		at.Add(-3 * time.Second), at.Add(-2500 * time.Millisecond), at, 0,
	} {
		name := fmt.Sprintf("copy_%d", i)
		var asOf time.Time
		if until != 0 {
			asOf = until.Time()
		} else {
			until = wire.Never
		}
		got, err := s.Copy(t.Context(), name, asOf)
		if err != nil {
			t.Fatalf("as of %s: %v", until, err)
		}
		rows, err := r.Pool.Query(t.Context(), fmt.Sprintf(`SELECT format('%%s/%%s %%s %%s %%s %%s', campaign, n, customer_id, status, redeemed_count,
			(extract(epoch FROM claimed_at) * 1000000)::bigint) FROM %s.coupon`, name))
		if err != nil {
			t.Fatal(err)
		}
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		sort.Strings(list)
		if a, b := strings.Join(list, "\n"), strings.Join(r.naive(until), "\n"); a != b {
			t.Errorf("as of %s, after %d events:\n%s\nnaive fold\n%s", until, got.Events, a, b)
		}
		// Its own digest function looks at itself.
		if n := r.text(fmt.Sprintf("SELECT row_count::text FROM %s.digest() WHERE relation = 'coupon_row'", name)); n != fmt.Sprint(len(list)) {
			t.Errorf("%s.digest() counts %s coupons, there are %d", name, n, len(list))
		}
	}
	if r.digest() != want || r.text("SELECT row_count::text FROM scrip.digest() WHERE relation = 'coupon_row'") != fmt.Sprint(r.Claims[0]+r.Claims[1]) {
		t.Error("the live tables changed")
	}
	if s := r.schemas(); s != "scrip" {
		t.Errorf("schemas %s", s)
	}
}

// A copy that is ended leaves nothing.
func TestCopyEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.project()
	r.Work()
	r.synced()
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
		if n := r.text("SELECT count(*)::text FROM pg_namespace WHERE nspname IN ('ended', 'scrip_scratch')"); n != "0" {
			t.Errorf("%s: %s schemas are left", at, n)
		}
	}
}
