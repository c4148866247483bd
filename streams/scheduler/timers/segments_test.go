package timers

import (
	"bytes"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// used is how many bytes of the segments' files are used, and how many blocks there are.
func (c *workload) used() (bytes int64, blocks int) {
	for _, s := range c.b.customers.open {
		bytes += s.end
	}
	for _, e := range c.b.list {
		if e.customers != nil {
			blocks += len(e.customers.blocks)
		}
	}
	return bytes, blocks
}

// Where 49 of 50 reminders are cancelled, disk and blocks follow the rest, while a snapshot is written too; and after a great
// firing. All who are left are published.
func TestSparseSegmentsAreCopied(t *testing.T) {
	c := newWorkload(t, 1, 3)
	who := &c.b.customers
	who.full = 64 << 10
	const each = 12_000
	for i := range c.campaigns {
		for range each {
			c.lastR[i]++
			c.fold(wire.Event{Type: wire.ReminderSet, Campaign: c.campaigns[i], R: c.lastR[i], CustomerID: c.customer(i, c.lastR[i]), Kind: wire.KindOpens, DueAt: start})
		}
	}
	full, blocks := c.used()
	before := bytesOf(t, c.b)
	frozen := c.b.Freeze()
	frozen.Continue(time.Hour)
	for i := range c.campaigns {
		for r := uint64(1); r <= each; r++ {
			if r%50 != 3 {
				c.fold(wire.Event{Type: wire.ReminderCancelled, Campaign: c.campaigns[i], R: r})
			}
		}
	}
	finish := func() { // nothing more comes: what is sparse is copied all the same
		t.Helper()
		for range 2000 {
			streamtest.Must(t, who.compact())
		}
		if len(who.sparse) > 0 {
			t.Errorf("%d segments are sparse", len(who.sparse))
		}
	}
	finish()
	if _, now := c.used(); now > blocks/13 { // up to a fifteenth are in the segment that is filled
		t.Errorf("of %d blocks %d are left for a fiftieth of the customers", blocks, now)
	}
	var content bytes.Buffer
	if err := frozen.Write(&content); err != nil || !bytes.Equal(content.Bytes(), before) {
		t.Errorf("other timers were frozen (%v)", err)
	}
	c.b.Thaw()
	if now, _ := c.used(); now > full/25+who.full {
		t.Errorf("of %d bytes %d are left for a fiftieth of the customers", full, now)
	}
	c.fire(0) // two of three campaigns
	c.fire(1)
	finish()
	if now, _ := c.used(); now > full/75+who.full {
		t.Errorf("of %d bytes %d are left for a 150th of the customers", full, now)
	}
	c.fire(2)
	if len(who.open) != 0 || c.b.reminders != 0 {
		t.Errorf("%d segments with %d reminders", len(who.open), c.b.reminders)
	}
}
