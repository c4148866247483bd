package timers

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// fullTimers has something of everything.
func fullTimers(t *testing.T) *Timers {
	b := New("")
	fold := func(ev wire.Event) {
		t.Helper()
		if _, err := b.Fold(&ev); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		name := fmt.Sprintf("c%d", i)
		fold(wire.Event{Type: wire.CampaignCreated, Campaign: name, Settings: wire.Settings{OpensAt: start + seconds(i), ExpiresAt: start + seconds(1000*(i%2))}})
		for n := uint32(1); n <= 600; n += 1 + uint32(i) {
			at := start + seconds(int(n/7)*60)
			if n%50 == 0 {
				at++ // an fractional one
			}
			fold(wire.Event{Type: wire.CouponClaimed, Campaign: name, N: n, ExpiresAt: at})
			fold(wire.Event{Type: wire.ReminderSet, Campaign: name, R: uint64(n), CustomerID: fmt.Sprint("x", n), Kind: wire.KindExpires, Before: time.Second, N: n})
		}
		fold(wire.Event{Type: wire.ReminderSet, Campaign: name, R: 10000, CustomerID: "ü", Kind: wire.KindOpens})
		fold(wire.Event{Type: wire.CouponsExpired, Campaign: name, Through: start + seconds(3000)})
	}
	return b
}

func TestTimersReadBackAreTheSame(t *testing.T) {
	b := fullTimers(t)
	var one, two bytes.Buffer
	if err := b.Write(&one); err != nil {
		t.Fatal(err)
	}
	back, err := Read("", Format, bytes.NewReader(one.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := back.Write(&two); err != nil || !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Errorf("other timers came back (%v)", err)
	}
	if back.reminders != b.reminders || back.instants != b.instants || b.reminders == 0 || b.instants == 0 {
		t.Errorf("%d reminders and %d instants came back of %d and %d", back.reminders, back.instants, b.reminders, b.instants)
	}
}

// A damaged snapshot never makes a panic, and one that is cut off never makes timers.
func TestDamagedSnapshots(t *testing.T) {
	var whole bytes.Buffer
	if err := fullTimers(t).Write(&whole); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, 2, 5, 17, 100, 1000, whole.Len() / 2, whole.Len() - 1} {
		if _, err := Read("", Format, bytes.NewReader(whole.Bytes()[:n])); err == nil {
			t.Errorf("%d bytes of %d make timers", n, whole.Len())
		}
	}
	if _, err := Read("", Format, bytes.NewReader(append(bytes.Clone(whole.Bytes()), 0))); err == nil {
		t.Error("a byte too many makes timers")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		damaged := bytes.Clone(whole.Bytes())
		damaged[rng.IntN(len(damaged))] ^= 1 << rng.IntN(8)
		if b, err := Read("", Format, bytes.NewReader(damaged)); err == nil && b == nil {
			t.Error("neither timers nor an error")
		}
	}
}

// Timers of the format before is read; what it holds was written by a version with that format.
func TestSnapshotOfTheFormatBefore(t *testing.T) {
	old, err := os.ReadFile("testdata/book-2.bin")
	if err != nil {
		t.Fatal(err)
	}
	b, err := Read("", 2, bytes.NewReader(old))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var got, want bytes.Buffer
	if err := b.Write(&got); err != nil {
		t.Fatal(err)
	}
	if err := fullTimers(t).Write(&want); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Error("other timers came back")
	}
}
