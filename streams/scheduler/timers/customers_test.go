package timers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// customerOf makes texts of all lengths, so that they fill blocks in all ways.
func customerOf(campaign int, r uint32) string {
	return fmt.Sprintf("c%d-%d-%s", campaign, r, strings.Repeat("x", int(r*7919%115)))
}

// Segments have no name: whenever the process ends, nothing is left. Few customers need none at all.
func TestCustomersLeaveNoFile(t *testing.T) {
	dir := t.TempDir()
	c := &segments{dir: dir, full: 128 << 10}
	defer c.close()
	l := new(customerList)
	for r := uint32(1); r <= 10_000; r++ {
		streamtest.Must(t, c.add(l, r, customerOf(0, r)))
		if r == 3 && len(c.open) > 0 {
			t.Error("a segment for three customers")
		}
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 || len(c.open) == 0 {
		t.Errorf("the directory holds %v (%v)", names, err)
	}
	// No more is kept while as many come as go.
	before := len(c.open)
	for r := uint32(10_001); r <= 50_000; r++ {
		streamtest.Must(t, c.add(l, r, customerOf(0, r)))
		if _, err := c.fire(l, []uint64{uint64(r - 10_000)}); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.open) > before+2 {
		t.Errorf("%d segments are open, %d before", len(c.open), before)
	}
}

// Timers without room on the disk return ErrDisk, and no error that the log does not fit.
func TestCustomersWithoutADisk(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone")
	b := New(gone)
	err := fillTimers(b, 1000)
	if !errors.Is(err, ErrDisk) || !strings.Contains(err.Error(), gone) || !strings.Contains(err.Error(), "make room there") {
		t.Errorf("folding without a directory: %v", err)
	}
	b = New(t.TempDir())
	streamtest.Must(t, fillTimers(b, 1000))
	// The disk goes away under it, and at another time it comes back with something else.
	b.customers.filling.file.Close()
	due := wire.Event{Type: wire.RemindersDue, Campaign: "a", Kind: wire.KindOpens, DueAt: start, FromR: 1, ThroughR: 1000, Fired: 1000}
	if _, err := b.Fold(&due); !errors.Is(err, ErrDisk) {
		t.Errorf("firing without the file: %v", err)
	}
	b = New(t.TempDir())
	defer b.Close()
	streamtest.Must(t, fillTimers(b, 1000))
	if _, err := b.customers.filling.file.WriteAt(make([]byte, 100), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Fold(&due); !errors.Is(err, errNoCustomer) {
		t.Errorf("firing from a damaged file: %v", err)
	}
}

// fillTimers makes campaign a with n pending reminders of its opening.
func fillTimers(b *Timers, n int) error {
	if _, err := b.Fold(&wire.Event{Type: wire.CampaignCreated, Campaign: "a", Settings: wire.Settings{OpensAt: start}}); err != nil {
		return err
	}
	for r := 1; r <= n; r++ {
		ev := wire.Event{Type: wire.ReminderSet, Campaign: "a", R: uint64(r), CustomerID: fmt.Sprint("customer-", r), Kind: wire.KindOpens, DueAt: start}
		if _, err := b.Fold(&ev); err != nil {
			return err
		}
	}
	return nil
}

// Numbers and texts that no lane writes are refused, and nothing is kept of them.
func TestCustomersOfNoLane(t *testing.T) {
	b := New("")
	streamtest.Must(t, fillTimers(b, 3))
	for _, ev := range []wire.Event{
		{R: 3, CustomerID: "again"},
		{R: 0, CustomerID: "zero"},
		{R: 1 << 32, CustomerID: "far"},
		{R: 4, CustomerID: strings.Repeat("x", wire.MaxCustomerID+1)},
		{R: 9, N: 1}, // set again, and not known: the log is not the one that the timers were folded from
	} {
		ev.Type, ev.Campaign, ev.Kind, ev.DueAt = wire.ReminderSet, "a", wire.KindOpens, start
		if ev.N > 0 {
			ev.Kind = wire.KindExpires
		}
		if _, err := b.Fold(&ev); err == nil || errors.Is(err, ErrDisk) {
			t.Errorf("reminder %d for %.10s: %v", ev.R, ev.CustomerID, err)
		}
	}
	if b.reminders != 3 || b.campaigns["a"].pending.Len() != 3 {
		t.Errorf("%d reminders", b.reminders)
	}
}

// A time zone outlasts a redemption and its rollback, which names the customer no more.
func TestZonesOfCustomers(t *testing.T) {
	b := New(t.TempDir())
	expires := start + wire.Instant(48*time.Hour/time.Microsecond)
	var fired []Fired
	for _, ev := range []wire.Event{
		{Type: wire.CampaignCreated, Settings: wire.Settings{ExpiresAt: expires}},
		{Type: wire.ReminderSet, R: 1, N: 1, CustomerID: "ann", Zone: "Asia/Tokyo"},
		{Type: wire.ReminderSet, R: 2, N: 2, CustomerID: "bob"},
		{Type: wire.ReminderCancelled, R: 1, N: 1},
		{Type: wire.ReminderSet, R: 3, N: 1},
		{Type: wire.RemindersDue, DueAt: expires - wire.Instant(time.Hour/time.Microsecond), FromR: 1, ThroughR: 3, Fired: 2},
	} {
		ev.Campaign = "a"
		if ev.Type != wire.CampaignCreated {
			ev.Kind, ev.Before = wire.KindExpires, time.Hour
		}
		gone, err := b.Fold(&ev)
		streamtest.Must(t, err)
		fired = append(fired, gone...)
	}
	want := []Fired{{R: 2, Customer: "bob", Before: time.Hour}, {R: 3, Customer: "ann\nAsia/Tokyo", Before: time.Hour}}
	if !slices.Equal(fired, want) {
		t.Errorf("%+v", fired)
	}
}
