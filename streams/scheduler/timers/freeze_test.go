package timers

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/reminder"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// workload folds what happens in a lively lane: claims, extensions, reminders that are set, cancelled, moved and fired, by
// hundreds, in many campaigns. It is not what a lane would decide, but it is what its events look like.
type workload struct {
	t         testing.TB
	rng       *rand.Rand
	b         *Timers
	campaigns []string
	claimed   []uint32
	lastR     []uint64
}

func newWorkload(t testing.TB, seed uint64, campaigns int) *workload {
	c := &workload{t: t, rng: rand.New(rand.NewPCG(seed, 4)), b: New(t.TempDir())}
	t.Cleanup(c.b.Close)
	for i := range campaigns {
		c.campaigns = append(c.campaigns, fmt.Sprintf("c%d", i))
		c.fold(wire.Event{Type: wire.CampaignCreated, Campaign: c.campaigns[i], Settings: wire.Settings{OpensAt: start, Priority: wire.PriorityLow}})
	}
	c.claimed, c.lastR = make([]uint32, campaigns), make([]uint64, campaigns)
	return c
}

func (c *workload) fold(ev wire.Event) []Fired {
	c.t.Helper()
	return fold(c.t, c.b, ev)
}

func (c *workload) customer(campaign int, r uint64) string {
	return fmt.Sprintf("%d-%d-%s", campaign, r, "customer customer customer customer"[:r%37%35])
}

// step is some hundred events.
func (c *workload) step() {
	c.t.Helper()
	i := c.rng.IntN(len(c.campaigns))
	name, e := c.campaigns[i], c.b.campaigns[c.campaigns[i]]
	at := start + seconds(60*(1+c.rng.IntN(40)))
	switch c.rng.IntN(8) {
	case 0, 1, 2, 3:
		for range c.rng.IntN(300) {
			c.lastR[i]++
			ev := wire.Event{Type: wire.ReminderSet, Campaign: name, R: c.lastR[i], CustomerID: c.customer(i, c.lastR[i]), Kind: wire.KindOpens}
			ev.Before = time.Duration(c.rng.IntN(4)) * time.Second
			ev.DueAt = e.Anchors.Opens - wire.Instant(ev.Before/time.Microsecond)
			if c.rng.IntN(2) == 0 {
				c.claimed[i]++
				expires := at
				if c.rng.IntN(3) == 0 {
					expires = 0
				}
				c.fold(wire.Event{Type: wire.CouponClaimed, Campaign: name, N: c.claimed[i], ExpiresAt: expires})
				ev.Kind, ev.N = wire.KindExpires, c.claimed[i]
				ev.DueAt = reminder.DueAt(ev.Kind, ev.Before, expires, e.Anchors)
			}
			c.fold(ev)
		}
	case 4: // cancel some
		var rs []uint64
		e.pending.All(func(r uint64, _ string, _ time.Duration, _ uint32, _ wire.Instant) {
			if c.rng.IntN(10) == 0 {
				rs = append(rs, r)
			}
		})
		for _, r := range rs {
			c.fold(wire.Event{Type: wire.ReminderCancelled, Campaign: name, R: r})
		}
	case 5:
		if c.claimed[i] > 0 {
			for range 50 {
				c.fold(wire.Event{Type: wire.CouponExtended, Campaign: name, N: 1 + c.rng.Uint32N(c.claimed[i]), ExpiresAt: at})
			}
		}
	case 6:
		c.fold(wire.Event{Type: wire.CampaignUpdated, Campaign: name, Settings: wire.Settings{OpensAt: at, ExpiresAt: at + seconds(c.rng.IntN(1000))}})
	default:
		c.fire(i)
	}
}

// fire takes what is next in a campaign, and looks whom it is for.
func (c *workload) fire(i int) {
	c.t.Helper()
	e := c.b.campaigns[c.campaigns[i]]
	var dues []reminder.DueReminders
	for due := range e.pending.Due(e.Anchors, e.pending.Next(e.Anchors)) {
		dues = append(dues, due)
	}
	for _, due := range dues {
		gone := c.fold(wire.Event{Type: wire.RemindersDue, Campaign: e.Name, Kind: due.Kind, DueAt: due.DueAt, FromR: due.FromR, ThroughR: due.LastR})
		if uint64(len(gone)) != due.Subscriptions {
			c.t.Fatalf("%d fired of %d", len(gone), due.Subscriptions)
		}
		for _, f := range gone {
			if want := c.customer(i, f.R); f.Customer != want {
				c.t.Fatalf("reminder %d fired for %q, it was set for %q", f.R, f.Customer, want)
			}
		}
	}
}

func bytesOf(t testing.TB, b *Timers) []byte {
	t.Helper()
	var content bytes.Buffer
	defer b.Thaw()
	f := b.Freeze()
	f.Continue(time.Hour)
	streamtest.Must(t, f.Write(&content))
	return content.Bytes()
}

// piece freezes one campaign, or all that are left.
func (f *Frozen) piece(all bool) (done bool) {
	if all || len(f.left) <= 1 {
		return f.Continue(time.Hour)
	}
	if e := f.left[0]; e.epoch != f.timers.epoch {
		f.take(e)
	}
	f.left = f.left[1:]
	return false
}

// A frozen timers, written by another goroutine while a lot goes on, is the timers as it was; and going on was not disturbed.
func TestFrozenTimersAreAsTheyWere(t *testing.T) {
	for seed := range *rounds {
		c := newWorkload(t, seed, 5)
		twin := newWorkload(t, seed, 5) // the same, never frozen nor compacted
		c.b.customers.full = 4 << 10
		for range 40 {
			c.step()
			twin.step()
		}
		for round := range 4 {
			want := bytesOf(t, twin.b)
			frozen := c.b.Freeze()
			early := wire.Event{Type: wire.CampaignCreated, Campaign: fmt.Sprint("early", round)}
			c.fold(early) // after the freeze, before it is done
			twin.fold(early)
			for !frozen.piece(seed%2 == 0) { // a campaign at a time, or all at once
				c.step()
				twin.step()
			}
			late := wire.Event{Type: wire.CampaignCreated, Campaign: fmt.Sprint("late", round)}
			c.fold(late)
			twin.fold(late)
			start, written := make(chan struct{}), make(chan error, 1)
			var content, again bytes.Buffer
			go func() {
				<-start
				err := frozen.Write(&content)
				if err == nil {
					err = frozen.Write(&again) // a store may request twice
				}
				written <- err
			}()
			for i := range 30 {
				if i == 3*round {
					close(start)
				}
				c.step()
				twin.step()
			}
			streamtest.Must(t, <-written)
			c.b.Thaw()
			if !bytes.Equal(content.Bytes(), want) || !bytes.Equal(again.Bytes(), want) {
				t.Fatalf("seed %d round %d: the frozen timers differ", seed, round)
			}
			if !bytes.Equal(bytesOf(t, c.b), bytesOf(t, twin.b)) {
				t.Fatalf("seed %d round %d: the timers go on as others", seed, round)
			}
			// Read back, it goes on as well.
			back, err := Read(t.TempDir(), bytes.NewReader(want))
			streamtest.Must(t, err)
			if !bytes.Equal(bytesOf(t, back), want) {
				t.Fatalf("seed %d round %d: other timers are read back", seed, round)
			}
			back.Close()
		}
		for i := range c.campaigns { // and everyone is published
			for c.b.campaigns[c.campaigns[i]].pending.Next(c.b.campaigns[c.campaigns[i]].Anchors) != wire.Never {
				c.fire(i)
			}
		}
	}
}
