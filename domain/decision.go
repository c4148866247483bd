package domain

import (
	"strconv"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// decision is one command while it is checked.
type decision struct {
	*prepared
	lane   *Lane
	now    wire.Instant
	c      *campaign // the one it is about
	events []wire.Event
	first  int
	out    wire.Outcome

	code    [code.MaxCodeLen]byte // of the coupon in question
	shown   int                   // length of it; 0 = not computed yet
	later   bool                  // codes are placeholders, which the step fills in
	open    uint32                // the coupon of the placeholder; 0 = none
	message []byte                // of a refusal
}

// refuse makes the outcome a refusal. The message is for people and names what to do where there is something to do. Refusals
// may be as frequent as claims, so messages are not formatted by package fmt.
func (d *decision) refuse(r wire.Refusal, message string) {
	d.out = wire.Outcome{ID: d.cmd.ID, Status: wire.StatusRefused, Campaign: d.cmd.Campaign, Refusal: r, Message: message}
	if d.c != nil {
		d.out.Campaign = d.c.name
	}
}

// text is a message around a text.
func (d *decision) text(before, text, after string) string {
	d.message = append(append(append(d.message[:0], before...), text...), after...)
	return wire.View(d.message)
}

// textNumber is a message around a number.
func (d *decision) textNumber(before string, n uint32, after string) string {
	d.message = append(strconv.AppendUint(append(d.message[:0], before...), uint64(n), 10), after...)
	return wire.View(d.message)
}

// textTime is a message around an instant.
func (d *decision) textTime(before string, at wire.Instant, after string) string {
	d.message = append(at.Append(append(d.message[:0], before...)), after...)
	return wire.View(d.message)
}

// campaign finds the command's campaign or refuses.
func (d *decision) campaign() bool {
	if d.c = d.prepared.c; d.c == nil {
		d.c = d.lane.find(d.cmd.Campaign)
	}
	if d.c == nil {
		d.refuse(wire.CampaignNotFound, d.text("there is no campaign ", d.cmd.Campaign, ""))
		return false
	}
	return true
}

// coupon finds the command's coupon or refuses.
func (d *decision) coupon() (n uint32, ok bool) {
	c, n, ok := d.lane.coupon(d.prepared)
	if !ok {
		missing := "there is no such code"
		switch {
		case d.cmd.N != 0:
			missing = "no coupon of the campaign with this number has been claimed"
		case d.cmd.Campaign == "" && !d.prepared.coupon.OK:
			missing = wire.NoForm
		}
		d.refuse(wire.CodeNotFound, missing)
		return 0, false
	}
	d.c = c
	if d.prepared.coupon.OK {
		d.shown = len(d.prepared.coupon.Raw.AppendCode(d.code[:0], c.settings.Prefix))
	}
	return n, true
}

// codeOf is the code of coupon n, which the decision is about, as people see it. It is computed once.
func (d *decision) codeOf(n uint32) string {
	switch {
	case d.c.imported != nil:
		return d.c.imported.at(n - 1)
	case d.shown > 0:
	case d.later:
		d.shown, d.open = len(codePlaceholder.AppendCode(d.code[:0], d.c.settings.Prefix)), n
	default:
		d.shown = len(d.lane.codec.AppendCode(d.code[:0], d.c.settings.Prefix, d.c.number, n))
	}
	return wire.View(d.code[:d.shown])
}

// reused refuses an id that was used by another command.
func (d *decision) reused() {
	d.refuse(wire.IdempotencyKeyReused, d.text("the id ", d.cmd.ID, " was used by another command; give each command its own id"))
}

// emit adds an event of the command and returns it to be filled in.
func (d *decision) emit(t wire.EventType) *wire.Event {
	n := len(d.events)
	if n < cap(d.events) {
		d.events = d.events[:n+1]
		d.events[n] = wire.Event{}
	} else {
		d.events = append(d.events, wire.Event{})
	}
	ev := &d.events[n]
	ev.Type, ev.Campaign, ev.At, ev.ID, ev.ByN = t, d.c.name, d.now, d.cmd.ID, d.cmd.N != 0 && t.ChangesCoupon()
	return ev
}

// apply folds the events made so far by this command, in order. It cannot fail: they were made from this state.
func (d *decision) apply() {
	for i := d.first; i < len(d.events); i++ {
		d.mustApply(d.lane.Apply(&d.events[i]))
	}
	d.first = len(d.events)
}

// applied panics if an event that this command made does not apply.
func (d *decision) mustApply(err error) {
	if err != nil {
		panic("domain: an event of this command does not apply: " + err.Error())
	}
}

// holds reports whether the command's customer, if it names one, holds coupon n.
func (d *decision) isHolder(n uint32) bool {
	holder := d.c.coupon(n).customer
	return d.cmd.CustomerID == "" || d.customer == holder || holder == customerHash{} // printed, and not redeemed by a customer yet
}

// couponOutcome fills in the fields of every outcome of a coupon.
func (d *decision) couponOutcome(status string, n uint32) {
	d.out.Status, d.out.Campaign, d.out.N = status, d.c.name, n
	d.out.Code = d.codeOf(n)
	d.out.CustomerID = d.cmd.CustomerID
	if at := d.c.expires(n); at != wire.Never {
		d.out.ExpiresAt = at
	}
}

// prepared is a command with what can be computed before it is decided. A step prepares several lines at once: decoding codes
// and waiting for memory take hardly longer for eight of them.
//
// Nothing in it may depend on the commands before it: one of them may create the campaign, so a campaign that was not found
// is looked up again.
type prepared struct {
	cmd      *wire.Command
	c        *campaign // named by the command or its code; nil if it does not exist yet
	id       uint64    // hash of its id
	customer customerHash
	coupon   code.Decoded // of its code, unless codes of that campaign are imported
}

// prepare prepares up to code.Batch commands.
func (l *Lane) prepare(list []prepared) {
	var codes [code.Batch]code.Decoded
	n := 0
	for i := range list {
		p := &list[i]
		if p.cmd.Campaign != "" {
			p.c = l.find(p.cmd.Campaign)
		}
		p.id = l.hash.text(p.cmd.ID)
		if p.cmd.CustomerID != "" {
			p.customer = l.hash.customer(p.cmd.CustomerID)
		}
		if p.readsCode() {
			codes[n].Input = p.cmd.Code
			n++
		}
	}
	if n > 0 {
		l.codec.DecodeBatch(codes[:n])
		n = 0
		for i := range list {
			if p := &list[i]; p.readsCode() {
				p.coupon = codes[n]
				n++
			}
		}
	}
	for i := range list {
		l.prefetch(&list[i])
	}
}

func (p *prepared) readsCode() bool {
	return p.cmd.Type.HasCode() && p.cmd.N == 0 && (p.c == nil || p.c.imported == nil)
}

// prefetch reads the memory that deciding the command needs, without waiting for it.
func (l *Lane) prefetch(p *prepared) {
	c := p.c
	if p.coupon.OK {
		if c = l.numbered(p.coupon.Campaign); c == nil || p.coupon.N > c.claimed() {
			return
		}
		l.prefetched += c.coupon(p.coupon.N).act
	}
	if c == nil || c.indexes == nil {
		return
	}
	l.prefetched += c.indexes.ids.Prefetch(p.id)
	switch {
	case p.cmd.Type == wire.Claim || p.cmd.Kind == wire.KindExpires:
		l.prefetched += c.indexes.customers.Prefetch(p.customer[0])
	case p.cmd.Kind == wire.KindOpens:
		l.prefetched += c.reminders().Prefetch(reminded(p.customer))
	}
}

// pendingCodes are the placeholders of codes in the lines of a step. The codes are computed several at a time.
type pendingCodes struct {
	n       int
	coupons [code.Batch]code.Coupon
	at      [code.Batch]struct{ event, reply int } // 0 = not in it
}

// codePlaceholder is written where a code will be filled in. It has the form of a code.
var codePlaceholder = code.Raw([]byte("????????????"))

// fill writes the codes over their placeholders.
func (t *pendingCodes) fill(l *Lane, events, replies []byte) {
	if t.n == 0 {
		return
	}
	var raws [code.Batch]code.Raw
	l.codec.EncodeBatch(t.coupons[:t.n], &raws)
	for i := range t.n {
		at := t.at[i]
		raws[i].AppendCode(replies[:at.reply], "")
		if at.event > 0 {
			raws[i].AppendCode(events[:at.event], "")
		}
	}
	t.n = 0
}

// coupon finds the claimed coupon that a command names by its code, and if it gives one, its campaign; or by campaign and n.
// Malformed, unclaimed and forged codes are all not found.
func (l *Lane) coupon(p *prepared) (c *campaign, n uint32, ok bool) {
	if p.cmd.Campaign != "" {
		if p.c == nil {
			p.c = l.find(p.cmd.Campaign)
		}
		if c = p.c; c == nil {
			return nil, 0, false
		}
		if p.cmd.N != 0 {
			return c, p.cmd.N, p.cmd.N <= c.claimed()
		}
		if c.imported != nil {
			i, found := c.imported.find(p.cmd.Code)
			return c, i + 1, found && i < c.claimed()
		}
	}
	if !p.coupon.OK {
		return nil, 0, false
	}
	found := l.numbered(p.coupon.Campaign)
	if found == nil || c != nil && c != found || found.imported != nil || p.coupon.N > found.claimed() {
		return nil, 0, false
	}
	found = l.writable(found)
	l.last = found
	return found, p.coupon.N, true
}
