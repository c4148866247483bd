// Package readtest gives the tests of rebuilding and verifying a real log, a database, and the live projector between
// them. Its campaigns are c0 and c1, one per lane.
//
// Owner: the test.
package readtest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/logtest"
	"github.com/seed-4a2410e3/scrip/projections/pgtest"
	"github.com/seed-4a2410e3/scrip/projections/projector"
)

// Lanes is how many lanes the log has.
const Lanes = logtest.Lanes

// Quiet logs nothing.
var Quiet = slog.New(slog.DiscardHandler)

// Rig is a log and a database.
type Rig struct {
	*logtest.Rig
	URL  string
	Pool *pgxpool.Pool

	Claims [Lanes]uint32 // highest coupon number by lane; guarded by Mu
}

// New starts a log and creates an empty database.
func New(t testing.TB) *Rig {
	t.Helper()
	url := pgtest.URL(t)
	return &Rig{Rig: logtest.New(t), URL: url, Pool: logtest.Pool(t, url)}
}

// Created is the event of a new campaign, with further fields.
func Created(campaign string, number int, more string) string {
	return fmt.Sprintf(`{"type":"campaign.created","campaign":%q,"at":"@","number":%d,"codes":100000000,"max_redemptions":1%s}`, campaign, number, more)
}

// Claimed is the event of a claim.
func Claimed(campaign string, n uint32, at wire.Instant) *wire.Event {
	return &wire.Event{
		Type: wire.CouponClaimed, Campaign: campaign, At: at, ID: fmt.Sprintf("0193a7b2-7000-7000-8000-%012d", n), N: n,
		Code: fmt.Sprintf("%04X-%04X-%04d", n*7919%65536, n/7%65536, n%10000), CustomerID: fmt.Sprintf("customer-%d", n),
	}
}

// Claim writes one message of a lane with that many claims.
func (r *Rig) Claim(lane, many int) {
	r.T.Helper()
	r.Step(lane, func(at wire.Instant) (payload []byte) {
		for range many {
			r.Claims[lane]++
			payload = append(Claimed(fmt.Sprintf("c%d", lane), r.Claims[lane], at).AppendJSON(payload), '\n')
		}
		return payload
	})
}

// Work writes events of all kinds to each lane.
func (r *Rig) Work() {
	r.T.Helper()
	for lane := range Lanes {
		c := fmt.Sprintf("c%d", lane)
		act := func(kind string, n int, more string) string {
			return fmt.Sprintf(`{"type":%q,"campaign":%q,"at":"@","n":%d,"code":"x"%s}`, kind, c, n, more)
		}
		r.Write(lane, Created(c, lane, `,"expires_at":"2026-06-01T00:00:00Z","opens_at":"2026-01-01T00:00:00Z"`))
		r.Claim(lane, 8)
		r.Write(lane, act("coupon.redeemed", 1, `,"order_id":"o1","redeemed_count":1`), act("coupon.redeemed", 2, `,"order_id":"o2","redeemed_count":1`))
		r.Write(lane, act("coupon.rolled_back", 2, `,"order_id":"o2","redeemed_count":0,"status":"claimed"`), act("coupon.voided", 3, `,"reason":"fraud","status":"voided"`))
		r.Write(lane, fmt.Sprintf(`{"type":"reminder.set","campaign":%q,"at":"@","r":1,"customer_id":"customer-4","kind":"expires","before":"1h0m0s","due_at":"2026-05-31T23:00:00Z","n":4}`, c),
			fmt.Sprintf(`{"type":"reminder.set","campaign":%q,"at":"@","r":2,"customer_id":"customer-5","kind":"expires","before":"1h0m0s","due_at":"2026-05-31T23:00:00Z","n":5}`, c))
		r.Write(lane, act("coupon.extended", 4, `,"expires_at":"2026-01-01T02:00:00Z","status":"claimed"`),
			fmt.Sprintf(`{"type":"reminder.cancelled","campaign":%q,"at":"@","r":2}`, c),
			fmt.Sprintf(`{"type":"commands.refused","campaign":%q,"at":"@","counts":{"sold_out":7}}`, c),
			fmt.Sprintf(`{"type":"command.rejected","campaign":%q,"at":"@","sequence":3,"line":2,"reason":"not JSON","payload":"{"}`, c))
		r.Write(lane, act("coupon.voided", 999, `,"reason":"poison","status":"voided"`)) // of a coupon that does not exist: becomes a dead letter
		r.Claim(lane, 3)
	}
	r.Mu.Lock()
	r.Clock = r.Clock.Add(3 * time.Hour)
	r.Mu.Unlock()
	for lane := range Lanes {
		r.Write(lane, fmt.Sprintf(`{"type":"coupons.expired","campaign":"c%d","at":"@","through":"2026-01-01T02:00:00Z","count":1}`, lane))
		r.Claim(lane, 2)
	}
}

// Project runs a live projector until the end of the test, or until the function it returns is called.
func (r *Rig) Project() (stop func()) {
	r.T.Helper()
	p, err := projector.New(r.Pool, r.JS, r.Log, projector.Options{Logger: Quiet})
	if err != nil {
		r.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.T.Errorf("projector: %v", err)
		}
	})
	r.T.Cleanup(stop)
	return stop
}

// Synced waits until everything written is in the live tables.
func (r *Rig) Synced() {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.T.Context(), 3*time.Minute)
	defer cancel()
	r.Mu.Lock()
	last := r.Last
	r.Mu.Unlock()
	for lane, sequence := range last {
		if err := projector.Synced(ctx, r.Pool, lane, sequence); err != nil {
			r.T.Fatal(err)
		}
	}
}

// Digest is the content of the live tables.
func (r *Rig) Digest() string { return logtest.Digest(r.T, r.Pool) }

// Folded is the digest of the whole log, folded by the live projector into another database.
func (r *Rig) Folded() string {
	r.T.Helper()
	url := pgtest.URL(r.T)
	other := &Rig{Rig: r.Rig, URL: url, Pool: logtest.Pool(r.T, url)}
	stop := other.Project()
	other.Synced()
	stop()
	return other.Digest()
}

// Exec runs a statement.
func (r *Rig) Exec(sql string, args ...any) {
	r.T.Helper()
	if _, err := r.Pool.Exec(r.T.Context(), sql, args...); err != nil {
		r.T.Fatalf("%s: %v", sql, err)
	}
}

// Text returns the one value of a query.
func (r *Rig) Text(sql string, args ...any) (value string) {
	r.T.Helper()
	if err := r.Pool.QueryRow(r.T.Context(), sql, args...).Scan(&value); err != nil {
		r.T.Fatalf("%s: %v", sql, err)
	}
	return value
}
