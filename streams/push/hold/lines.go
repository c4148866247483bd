package hold

import (
	"cmp"
	"maps"
	"slices"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/priority"
)

// message is one of SCRIP_PUSH_OUT.
type message struct {
	payload []byte
	class   priority.Priority
	items   [][]item // what is in it, of each customer
	counts  Counts   // what it adds
	size    int      // customers
}

// messages makes messages of what is let out, of at most so many customers each, the more urgent ones first. Those of one class
// share messages.
func messages(released []parcels, most int) (all []*message) {
	var list []*parcel
	for _, some := range released {
		list = slices.AppendSeq(list, maps.Values(some))
	}
	slices.SortFunc(list, func(a, b *parcel) int {
		return cmp.Or(cmp.Compare(a.class(), b.class()), slices.CompareFunc(a.lines, b.lines, func(x, y *line) int { return cmp.Compare(x.n, y.n) }))
	})
	var m *message
	for _, p := range list {
		for from := 0; from < len(p.customers); {
			if m == nil || m.class != p.class() || m.size >= most || len(m.payload) >= wire.MaxDueBytes {
				m = &message{class: p.class()}
				all = append(all, m)
			}
			if n := p.fit(from, most-m.size, wire.MaxDueBytes-len(m.payload)); n > 0 {
				m.add(p, from, from+n)
				from += n
				continue
			}
			m = nil // the next one has room
		}
	}
	return all
}

// class is the highest of those in it.
func (p *parcel) class() priority.Priority {
	return slices.MinFunc(p.lines, func(a, b *line) int { return cmp.Compare(a.class, b.class) }).class
}

// lineMost is more than a line without customers has, numberMost than the number of a customer's reminder and two commas.
const lineMost, numberMost = 512, 22

// fit is how many customers, of those from one on, fit into so much room; one fits into an empty message.
func (p *parcel) fit(from, most, room int) (n int) {
	free := room - lineMost*len(p.lines)
	var text []byte
	for ; n < most && from+n < len(p.customers); n++ {
		text = wire.AppendText(text[:0], p.customers[from+n])
		if free -= len(p.lines) * (len(text) + numberMost); free < 0 && (n > 0 || room < wire.MaxDueBytes) {
			break
		}
	}
	return n
}

// add adds customers of a parcel.
func (m *message) add(p *parcel, from, to int) {
	for i, l := range p.lines {
		ev := l.event
		ev.Withheld, ev.Merged = p.withheld, i > 0
		ev.CustomerIDs, ev.Rs = p.customers[from:to], make([]uint64, 0, to-from)
		for _, items := range p.items[from:to] {
			ev.Rs = append(ev.Rs, items[i].r)
		}
		m.payload = append(ev.AppendJSON(m.payload), '\n')
		m.counts.line(&ev)
	}
	m.items = append(m.items, p.items[from:to]...)
	m.size += to - from
}

// Counts are of reminders, since the log was made.
type Counts struct {
	// Sent customers' messages, each of one reminder and those that are Merged into it.
	Sent   uint64 `json:"sent"`
	Merged uint64 `json:"merged"`
	// Quiet and Cap are withheld: they were of no use any more when the quiet hours ended, or a day had room.
	Quiet uint64 `json:"quiet"`
	Cap   uint64 `json:"cap"`
}

// line counts a line of SCRIP_PUSH_OUT.
func (c *Counts) line(ev *wire.Event) {
	n := uint64(len(ev.CustomerIDs))
	switch {
	case ev.Withheld == wire.WithheldQuiet:
		c.Quiet += n
	case ev.Withheld == wire.WithheldCap:
		c.Cap += n
	case ev.Merged:
		c.Merged += n
	default:
		c.Sent += n
	}
}

func (c *Counts) add(o Counts) {
	c.Sent, c.Merged, c.Quiet, c.Cap = c.Sent+o.Sent, c.Merged+o.Merged, c.Quiet+o.Quiet, c.Cap+o.Cap
}
