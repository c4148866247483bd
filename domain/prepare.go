package domain

import (
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// prepared is a command with what can be found out about it before its turn. A step prepares several lines at once: what
// takes long there, reading codes and waiting for memory, takes hardly longer for eight of them.
//
// Nothing in it may depend on what the commands before it do: the campaign may have been made by one of them, and a
// campaign that was not there is looked for again.
type prepared struct {
	cmd      *wire.Command
	c        *campaign // the one it names or its code does; nil if that was not there yet
	id       uint64    // hash of its id
	customer customerHash
	coupon   code.Decoded // of its code, unless codes of that campaign are imported
}

// prepare finds out about up to code.Batch commands.
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
		l.touch(&list[i])
	}
}

func (p *prepared) readsCode() bool {
	return p.cmd.Type.HasCode() && (p.c == nil || p.c.imported == nil)
}

// touch asks memory for what the command's turn will look at, without waiting for it.
func (l *Lane) touch(p *prepared) {
	c := p.c
	if p.coupon.OK {
		if c = l.numbered(p.coupon.Campaign); c == nil || p.coupon.N > c.claimed() {
			return
		}
		l.touched += c.claims.At(p.coupon.N - 1).act
	}
	if c == nil || c.indexes == nil {
		return
	}
	l.touched += c.indexes.ids.Touch(p.id)
	switch {
	case p.cmd.Type == wire.Claim || p.cmd.Kind == wire.KindExpires:
		l.touched += c.indexes.customers.Touch(p.customer[0])
	case p.cmd.Kind == wire.KindOpens:
		l.touched += c.reminders().Touch(reminded(p.customer))
	}
}

// codesToCome are the places of codes that a step has left open in its lines: they are worked out several at a time.
type codesToCome struct {
	n       int
	coupons [code.Batch]code.Coupon
	at      [code.Batch]struct{ event, reply int } // 0 = not in it
}

// openCode stands where a code is to come. It has the form of one.
var openCode = code.Raw([]byte("????????????"))

// fill writes the codes to their places.
func (t *codesToCome) fill(l *Lane, events, replies []byte) {
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
