package scheduler

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
)

// A redemption that is rolled back sets its reminders again, without saying for whom: the book remembers it, through
// snapshots, moves and the tidying of what it keeps on disk, and forgets it when the coupons have expired.
func TestARollbackTellsWhomTheRedemptionWouldHaveTold(t *testing.T) {
	const coupons = 3000
	s := newShop()
	b := newBook(t.TempDir())
	defer func() { b.close() }()
	b.customers.tidyFrom = 1
	fold := func(events []domain.Event) (told []string) {
		t.Helper()
		for i := range events {
			gone, err := b.fold(&events[i])
			if err != nil {
				t.Fatalf("%s: %v", events[i].AppendJSON(nil), err)
			}
			for _, f := range gone {
				told = append(told, f.customer)
			}
		}
		return told
	}
	end := start + seconds(7200)
	fold(s.do(t, start, `"type":"create_campaign","campaign":"c","codes":%d,"expires_at":%q`, coupons, end))
	codes := make([]string, coupons)
	for i := range codes {
		made := s.do(t, start, `"type":"claim","campaign":"c","customer_id":"customer number %d"`, i)
		codes[i] = made[0].Code
		fold(made)
		fold(s.do(t, start, `"type":"remind","campaign":"c","customer_id":"customer number %d","kind":"expires","before":"1h"`, i))
	}
	for i, code := range codes {
		if i%10 != 0 {
			fold(s.do(t, start+1, `"type":"redeem","code":%q,"order_id":"o"`, code))
		}
	}
	if n := b.campaigns["c"].parked.Len(); b.reminders != coupons/10 || n != coupons-coupons/10 {
		t.Fatalf("%d pending, %d parked", b.reminders, n)
	}
	end += seconds(600)
	fold(s.do(t, start+1, `"type":"update_campaign","campaign":"c","expires_at":%q`, end))
	again := func(i int) {
		fold(s.do(t, start+2, `"type":"rollback","code":%q,"order_id":"o"`, codes[i]))
	}
	want := map[string]bool{}
	for i := range codes {
		switch i % 10 {
		case 0:
			want[fmt.Sprint("customer number ", i)] = true
		case 3, 7:
			want[fmt.Sprint("customer number ", i)] = true
			again(i)
		}
		if i == coupons/2 {
			var content, twice bytes.Buffer
			if err := b.encode(&content); err != nil {
				t.Fatal(err)
			}
			back, err := decodeBook(t.TempDir(), bookFormat, bytes.NewReader(content.Bytes()))
			if err != nil {
				t.Fatal(err)
			}
			b.close()
			b = back
			if err := b.encode(&twice); err != nil || !bytes.Equal(content.Bytes(), twice.Bytes()) {
				t.Fatalf("another book came back (%v)", err)
			}
		}
	}
	due := end.Add(-time.Hour)
	told := fold(s.do(t, due, `"type":"remind_due","campaign":"c","kind":"expires","due_at":%q,"through_r":99999`, due))
	if len(told) != len(want) {
		t.Errorf("%d are told, want %d", len(told), len(want))
	}
	for _, customer := range told {
		if !want[customer] {
			t.Errorf("%s is told", customer)
		}
	}
	fold(s.do(t, end, `"type":"expire","campaign":"c","through":%q`, end))
	if e := b.campaigns["c"]; e.parked.Len() != 0 || e.who != nil || b.customers.live != 0 || b.customers.blocks != 0 {
		t.Errorf("after the end %d are parked, %d customers kept in %d blocks", e.parked.Len(), b.customers.live, b.customers.blocks)
	}
}

// A line that sets again what the book does not know means that the log is not the one it was folded from.
func TestARestoredReminderThatNobodyKnows(t *testing.T) {
	d := newDesk(t)
	d.campaign("a", "", start, 1)
	ev := domain.Event{Type: domain.ReminderSet, Campaign: "a", R: 2, Kind: domain.KindExpires, N: 1}
	if _, err := d.p.book.fold(&ev); err == nil {
		t.Error("it is taken")
	}
}
