package domain

import (
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

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
	return p.cmd.Type.HasCode() && (p.c == nil || p.c.imported == nil)
}

// prefetch reads the memory that deciding the command needs, without waiting for it.
func (l *Lane) prefetch(p *prepared) {
	c := p.c
	if p.coupon.OK {
		if c = l.numbered(p.coupon.Campaign); c == nil || p.coupon.N > c.claimed() {
			return
		}
		l.prefetched += c.claims.At(p.coupon.N - 1).act
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
