package scheduler

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
)

// fullBook has something of everything.
func fullBook(t *testing.T) *book {
	b := newBook("")
	fold := func(ev domain.Event) {
		t.Helper()
		if _, err := b.fold(&ev); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		name := fmt.Sprintf("c%d", i)
		fold(domain.Event{Type: domain.CampaignCreated, Campaign: name, Settings: domain.Settings{OpensAt: start + seconds(i), ExpiresAt: start + seconds(1000*(i%2))}})
		for n := uint32(1); n <= 600; n += 1 + uint32(i) {
			at := start + seconds(int(n/7)*60)
			if n%50 == 0 {
				at++ // an odd one
			}
			fold(domain.Event{Type: domain.CouponClaimed, Campaign: name, N: n, ExpiresAt: at})
			fold(domain.Event{Type: domain.ReminderSet, Campaign: name, R: uint64(n), CustomerID: fmt.Sprint("x", n), Kind: domain.KindExpires, Before: time.Second, N: n})
		}
		fold(domain.Event{Type: domain.ReminderSet, Campaign: name, R: 10000, CustomerID: "ü", Kind: domain.KindOpens})
		fold(domain.Event{Type: domain.CouponsExpired, Campaign: name, Through: start + seconds(3000)})
	}
	return b
}

func TestBookReadBackIsTheSame(t *testing.T) {
	b := fullBook(t)
	var one, two bytes.Buffer
	if err := b.encode(&one); err != nil {
		t.Fatal(err)
	}
	back, err := decodeBook("", bookFormat, bytes.NewReader(one.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := back.encode(&two); err != nil || !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Errorf("another book came back (%v)", err)
	}
	if back.reminders != b.reminders || back.instants != b.instants || b.reminders == 0 || b.instants == 0 {
		t.Errorf("%d reminders and %d instants came back of %d and %d", back.reminders, back.instants, b.reminders, b.instants)
	}
}

// A damaged snapshot never makes a panic, and one that is cut off never makes a book.
func TestDamagedBooks(t *testing.T) {
	var whole bytes.Buffer
	if err := fullBook(t).encode(&whole); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, 2, 5, 17, 100, 1000, whole.Len() / 2, whole.Len() - 1} {
		if _, err := decodeBook("", bookFormat, bytes.NewReader(whole.Bytes()[:n])); err == nil {
			t.Errorf("%d bytes of %d make a book", n, whole.Len())
		}
	}
	if _, err := decodeBook("", bookFormat, bytes.NewReader(append(bytes.Clone(whole.Bytes()), 0))); err == nil {
		t.Error("a byte too many makes a book")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		damaged := bytes.Clone(whole.Bytes())
		damaged[rng.IntN(len(damaged))] ^= 1 << rng.IntN(8)
		if b, err := decodeBook("", bookFormat, bytes.NewReader(damaged)); err == nil && b == nil {
			t.Error("neither a book nor an error")
		}
	}
}
