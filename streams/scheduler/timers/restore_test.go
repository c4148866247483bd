package timers

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/lanetest"
)

// A redemption that is rolled back sets its reminders again, without the customer: the timers keep it through
// snapshots, moves and the copying of what they keep on disk, and forget it when the coupons have expired.
func TestARollbackRestoresTheCustomers(t *testing.T) {
	const coupons = 3000
	s := lanetest.New()
	b := New(t.TempDir())
	defer func() { b.Close() }()
	b.customers.full = 1 << 10
	fold := func(events []wire.Event) (published []string) {
		t.Helper()
		for i := range events {
			gone, err := b.Fold(&events[i])
			if err != nil {
				t.Fatalf("%s: %v", events[i].AppendJSON(nil), err)
			}
			for _, f := range gone {
				published = append(published, f.Customer)
			}
		}
		return published
	}
	end := start + seconds(7200)
	fold(s.Do(t, start, `"type":"create_campaign","campaign":"c","codes":%d,"expires_at":%q`, coupons, end))
	codes := make([]string, coupons)
	for i := range codes {
		made := s.Do(t, start, `"type":"claim","campaign":"c","customer_id":"customer number %d"`, i)
		codes[i] = made[0].Code
		fold(made)
		fold(s.Do(t, start, `"type":"remind","campaign":"c","customer_id":"customer number %d","kind":"expires","before":"1h"`, i))
	}
	for i, code := range codes {
		if i%10 != 0 {
			fold(s.Do(t, start+1, `"type":"redeem","code":%q,"order_id":"o"`, code))
		}
	}
	if n := b.campaigns["c"].restorable.Len(); b.reminders != coupons/10 || n != coupons-coupons/10 {
		t.Fatalf("%d pending, %d restorable", b.reminders, n)
	}
	end += seconds(600)
	fold(s.Do(t, start+1, `"type":"update_campaign","campaign":"c","expires_at":%q`, end))
	again := func(i int) {
		fold(s.Do(t, start+2, `"type":"rollback","code":%q,"order_id":"o"`, codes[i]))
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
			if err := b.Write(&content); err != nil {
				t.Fatal(err)
			}
			back, err := Read(t.TempDir(), bytes.NewReader(content.Bytes()))
			if err != nil {
				t.Fatal(err)
			}
			b.Close()
			b = back
			if err := b.Write(&twice); err != nil || !bytes.Equal(content.Bytes(), twice.Bytes()) {
				t.Fatalf("other timers came back (%v)", err)
			}
		}
	}
	due := end.Add(-time.Hour)
	published := fold(s.Do(t, due, `"type":"remind_due","campaign":"c","kind":"expires","due_at":%q,"through_r":99999`, due))
	if len(published) != len(want) {
		t.Errorf("%d are published, want %d", len(published), len(want))
	}
	for _, customer := range published {
		if !want[customer] {
			t.Errorf("%s is published", customer)
		}
	}
	fold(s.Do(t, end, `"type":"expire","campaign":"c","through":%q`, end))
	if e := b.campaigns["c"]; e.restorable.Len() != 0 || e.customers != nil || len(b.customers.open) != 0 {
		t.Errorf("after the end %d are restorable, %d segments are open", e.restorable.Len(), len(b.customers.open))
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
