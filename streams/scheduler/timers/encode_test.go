package timers

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/golden"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// fullTimers has something of everything.
func fullTimers(t *testing.T) *Timers {
	t.Helper()
	b := New("")
	for i := range 5 {
		name := fmt.Sprintf("c%d", i)
		settings := wire.Settings{OpensAt: start + seconds(i), ExpiresAt: start + seconds(1000*(i%2)), Priority: []string{"high", "normal", "low"}[i%3]}
		if i == 4 {
			settings.LateAfter = time.Hour
		}
		fold(t, b, wire.Event{Type: wire.CampaignCreated, Campaign: name, Settings: settings})
		for n := uint32(1); n <= 150; n += 1 + uint32(i) {
			at := start + seconds(int(n/7)*60)
			if n%50 == 0 {
				at++ // a fractional one
			}
			fold(t, b, wire.Event{Type: wire.CouponClaimed, Campaign: name, N: n, ExpiresAt: at})
			fold(t, b, wire.Event{Type: wire.ReminderSet, Campaign: name, R: uint64(n), CustomerID: fmt.Sprint("x", n), Kind: wire.KindExpires, Before: time.Second, N: n, DueAt: at - seconds(1)})
			if n%11 == 0 { // redeemed: a rollback sets it again
				fold(t, b, wire.Event{Type: wire.ReminderCancelled, Campaign: name, R: uint64(n), N: n})
			}
		}
		fold(t, b, wire.Event{Type: wire.ReminderSet, Campaign: name, R: 10000, CustomerID: "ü", Kind: wire.KindOpens})
		fold(t, b, wire.Event{Type: wire.CouponsExpired, Campaign: name, Through: start + seconds(300)})
	}
	return b
}

// contents is what timers hold, as plain values.
func contents(t *testing.T, b *Timers) (all []any) {
	t.Helper()
	for _, c := range b.list {
		whole, fractional := c.instants.frozen()
		all = append(all, c.Name, c.Priority, c.LateAfter, c.Anchors, c.expiredThrough, whole, fractional)
		c.own.runs(func(from, through uint32) { all = append(all, from, through) })
		customers := c.customers.frozen(new([largeBlock]byte))
		for _, of := range []interface {
			All(func(uint64, string, time.Duration, uint32, wire.Instant))
		}{&c.pending, &c.restorable} {
			of.All(func(r uint64, kind string, before time.Duration, n uint32, own wire.Instant) {
				all = append(all, r, kind, before, n, own)
			})
		}
		for r := range uint64(10001) {
			if c.remembers(r) {
				customer, err := customers.customer(r)
				streamtest.Must(t, err)
				all = append(all, string(customer))
			}
		}
	}
	return append(all, b.reminders, b.instants)
}

// TestGolden: a snapshot of an earlier build is read as it was meant, and the same timers are written to the same bytes.
func TestGolden(t *testing.T) {
	b := fullTimers(t)
	defer b.Close()
	content := golden.Bytes(t, fmt.Sprintf("timers-%d.golden", Format), bytesOf(t, b))
	back, err := Read("", bytes.NewReader(content))
	streamtest.Must(t, err)
	defer back.Close()
	if got, want := contents(t, back), contents(t, b); !reflect.DeepEqual(got, want) || back.reminders == 0 || back.instants == 0 {
		t.Errorf("the golden file is read as other timers\n got %v\nwant %v", got, want)
	}
}

// A damaged snapshot never makes a panic, and one that is cut off never makes timers.
func TestDamagedSnapshots(t *testing.T) {
	whole := bytesOf(t, fullTimers(t))
	for _, n := range []int{0, 1, 2, 5, 17, 100, 1000, len(whole) / 2, len(whole) - 1} {
		if _, err := Read("", bytes.NewReader(whole[:n])); err == nil {
			t.Errorf("%d bytes of %d make timers", n, len(whole))
		}
	}
	if _, err := Read("", bytes.NewReader(append(bytes.Clone(whole), 0))); err == nil {
		t.Error("a byte too many makes timers")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		damaged := bytes.Clone(whole)
		damaged[rng.IntN(len(damaged))] ^= 1 << rng.IntN(8)
		if b, err := Read("", bytes.NewReader(damaged)); err == nil && b == nil {
			t.Error("neither timers nor an error")
		}
	}
}
