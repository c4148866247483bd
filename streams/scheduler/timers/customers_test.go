package timers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// customerOf makes texts of all lengths, so that they fill blocks in all ways.
func customerOf(campaign int, r uint32) string {
	return fmt.Sprintf("c%d-%d-%s", campaign, r, strings.Repeat("x", int(r*7919%115)))
}

// Whatever is set, cancelled, fired, copied, frozen and thawed in whatever order: everyone's reminder is for whom it was set,
// in the timers as they are and in every view of them as they were.
func TestCustomersComeBack(t *testing.T) {
	for seed := range *rounds {
		rng := rand.New(rand.NewPCG(seed, 3))
		c := &segments{dir: t.TempDir(), full: 16 << 10}
		lists := make([]*customerList, 1+rng.IntN(4))
		pending := make([][]uint32, len(lists))
		type frozen struct {
			rs   [][]uint32
			view []frozenCustomers
		}
		var views []frozen
		for i := range lists {
			lists[i] = &customerList{kept: func(r uint64) bool {
				_, found := slices.BinarySearch(pending[i], uint32(r))
				return found
			}}
		}
		copied := 0
		check := func(v frozen) {
			t.Helper()
			for i, rs := range v.rs {
				who := v.view[i]
				for _, r := range rs {
					if rng.IntN(50) == 0 {
						continue // passing over some is allowed
					}
					if got, err := who.customer(uint64(r)); err != nil || string(got) != customerOf(i, r) {
						t.Fatalf("seed %d: frozen customer of %d/%d is %q, %v", seed, i, r, got, err)
					}
				}
			}
		}
		for step := range 400 {
			i := rng.IntN(len(lists))
			l := lists[i]
			switch k := rng.IntN(10); {
			case k < 4:
				for range rng.IntN(400) {
					r := l.last + 1
					if rng.IntN(20) == 0 {
						r += uint32(rng.IntN(1000))
					}
					if err := c.add(l, r, customerOf(i, r)); err != nil {
						t.Fatal(err)
					}
					pending[i] = append(pending[i], r)
				}
			case k < 6: // some at any place
				for range min(rng.IntN(100), len(pending[i])) {
					j := rng.IntN(len(pending[i]))
					c.remove(l, uint64(pending[i][j]))
					pending[i] = slices.Delete(pending[i], j, j+1)
				}
			case k < 8: // from the front, or a part of them, or all
				var rs []uint64
				keep := rng.IntN(4) // every so many stay; 0 = all go
				upTo := rng.IntN(len(pending[i]) + 1)
				pending[i] = slices.DeleteFunc(pending[i], func(r uint32) bool {
					gone := (len(rs) < upTo) && (keep == 0 || int(r)%(keep+1) != 0)
					if gone {
						rs = append(rs, uint64(r))
					}
					return gone
				})
				if len(rs) == 0 {
					break
				}
				fired, err := c.fire(l, rs)
				if err != nil || len(fired) != len(rs) {
					t.Fatalf("seed %d step %d: fired %d of %d: %v", seed, step, len(fired), len(rs), err)
				}
				for j, f := range fired {
					if f.R != rs[j] || f.Customer != customerOf(i, uint32(f.R)) {
						t.Fatalf("seed %d step %d: fired %d for %q", seed, step, f.R, f.Customer)
					}
				}
			case k == 8 && len(views) < 2:
				c.freeze()
				v := frozen{}
				buf := new([largeBlock]byte)
				for i, l := range lists {
					v.rs, v.view = append(v.rs, slices.Clone(pending[i])), append(v.view, l.frozen(buf))
				}
				views = append(views, v)
			case len(views) > 0:
				check(views[0])
				check(views[0]) // a second reading is the same
				views = views[1:]
				c.thaw()
			}
			for range rng.IntN(20) {
				if sparse := len(c.sparse); sparse > 0 {
					if err := c.compact(); err != nil {
						t.Fatalf("seed %d step %d: %v", seed, step, err)
					}
					copied += sparse - len(c.sparse)
				}
			}
		}
		if copied == 0 {
			t.Errorf("seed %d: no segment was copied", seed)
		}
		for _, v := range views {
			check(v)
			c.thaw()
		}
		for i, l := range lists {
			if len(pending[i]) > 0 {
				rs := make([]uint64, len(pending[i]))
				for j, r := range pending[i] {
					rs[j] = uint64(r)
				}
				if _, err := c.fire(l, rs); err != nil {
					t.Fatal(err)
				}
			}
			if !l.empty() {
				t.Errorf("seed %d: %d blocks and %d bytes left of nothing", seed, len(l.blocks), len(l.tail))
			}
		}
		if len(c.open) != 0 || c.filling != nil {
			t.Errorf("seed %d: %d segments of nothing are open", seed, len(c.open))
		}
		c.close()
	}
}

// Segments have no name: whenever the process ends, nothing is left. Few customers need none at all.
func TestCustomersLeaveNoFile(t *testing.T) {
	dir := t.TempDir()
	c := &segments{dir: dir, full: 128 << 10}
	defer c.close()
	l := new(customerList)
	for r := uint32(1); r <= 10_000; r++ {
		if err := c.add(l, r, customerOf(0, r)); err != nil {
			t.Fatal(err)
		}
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
		if err := c.add(l, r, customerOf(0, r)); err != nil {
			t.Fatal(err)
		}
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
	if err := fillTimers(b, 1000); err != nil {
		t.Fatal(err)
	}
	// The disk goes away under it, and at another time it comes back with something else.
	b.customers.filling.file.Close()
	due := wire.Event{Type: wire.RemindersDue, Campaign: "a", Kind: wire.KindOpens, DueAt: start, FromR: 1, ThroughR: 1000, Fired: 1000}
	if _, err := b.Fold(&due); !errors.Is(err, ErrDisk) {
		t.Errorf("firing without the file: %v", err)
	}
	b = New(t.TempDir())
	defer b.Close()
	if err := fillTimers(b, 1000); err != nil {
		t.Fatal(err)
	}
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
	if err := fillTimers(b, 3); err != nil {
		t.Fatal(err)
	}
	for _, ev := range []wire.Event{
		{R: 3, CustomerID: "again"},
		{R: 0, CustomerID: "zero"},
		{R: 1 << 32, CustomerID: "far"},
		{R: 4, CustomerID: strings.Repeat("x", wire.MaxCustomerID+1)},
	} {
		ev.Type, ev.Campaign, ev.Kind, ev.DueAt = wire.ReminderSet, "a", wire.KindOpens, start
		if _, err := b.Fold(&ev); err == nil || errors.Is(err, ErrDisk) {
			t.Errorf("reminder %d for %.10s: %v", ev.R, ev.CustomerID, err)
		}
	}
	if b.reminders != 3 || b.campaigns["a"].pending.Len() != 3 {
		t.Errorf("%d reminders", b.reminders)
	}
}

// A line that sets again what the timers do not know means that the log is not the one they were folded from.
func TestAnUnknownRestoredReminder(t *testing.T) {
	b := New("")
	if _, err := b.Fold(&wire.Event{Type: wire.CampaignCreated, Campaign: "a"}); err != nil {
		t.Fatal(err)
	}
	ev := wire.Event{Type: wire.ReminderSet, Campaign: "a", R: 2, Kind: wire.KindExpires, N: 1}
	if _, err := b.Fold(&ev); err == nil {
		t.Error("it is taken")
	}
}
