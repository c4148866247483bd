package timers

import (
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Where nine of ten reminders are cancelled, disk and blocks follow the tenth, and after a great firing the file is cut;
// everyone who is left is published.
func TestThinnedOutBlocksArePutTogether(t *testing.T) {
	c := newWorkload(t, 1, 3)
	who := &c.b.customers
	who.compactFrom = 16 << 10
	const each = 12_000
	for i := range c.campaigns {
		for range each {
			c.lastR[i]++
			kind := wire.KindOpens
			c.fold(wire.Event{Type: wire.ReminderSet, Campaign: c.campaigns[i], R: c.lastR[i], CustomerID: c.customer(i, c.lastR[i]), Kind: kind, DueAt: start})
		}
	}
	full := who.stored
	for i := range c.campaigns {
		for r := uint64(1); r <= each; r++ {
			if r%10 != 3 {
				c.fold(wire.Event{Type: wire.ReminderCancelled, Campaign: c.campaigns[i], R: r})
			}
		}
	}
	finish := func() { // nothing more comes: passes end by themselves
		for range 2000 {
			if err := c.b.compact(); err != nil {
				t.Fatal(err)
			}
		}
	}
	finish()
	if who.compacting != nil || who.stored > full/5 || int(who.end)*smallBlock > full/2 {
		t.Errorf("of %d bytes in blocks %d are left for a tenth of the customers, the file has %d", full, who.stored, int(who.end)*smallBlock)
	}
	if size, err := who.file.Stat(); err != nil || size.Size() > int64(who.end)*smallBlock {
		t.Errorf("the file has %v bytes of %d (%v)", size.Size(), int64(who.end)*smallBlock, err)
	}
	// Two of three campaigns fire; the third's blocks lie last, and move.
	c.fire(0)
	c.fire(1)
	finish()
	places := uint32(0)
	for _, b := range c.b.campaigns[c.campaigns[2]].customers.blocks {
		places = max(places, b.slot+units(b.class))
	}
	if who.end > places+units(large) || int(who.end)*smallBlock > full/10 {
		t.Errorf("the file ends at %d, its last block at %d", who.end, places)
	}
	c.fire(2)
	if who.end != 0 || c.b.reminders != 0 {
		t.Errorf("the file ends at %d with %d reminders", who.end, c.b.reminders)
	}
}
