package domain

import (
	"bytes"
	"fmt"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// foldedAhead is how many event lines are read before the first of them is applied: while one waits for memory, the
// others' come along.
const foldedAhead = code.Batch

// foldLine is an event line, read.
type foldLine struct {
	number int // from 1, empty lines counted
	event  wire.Event
	hashes eventHashes
	err    error
}

// eventHashes are what a lane keeps of the texts of an event.
type eventHashes struct {
	id       uint64
	customer customerHash
}

func (l *Lane) hashesOf(ev *wire.Event) (h eventHashes) {
	h.id = l.hash.text(ev.ID)
	if ev.CustomerID != "" {
		h.customer = l.hash.customer(ev.CustomerID)
	}
	return h
}

// Fold reads the event lines of a message and applies them in order: ParseEvent and Apply of each, but without copying
// what is only looked at, and so at half the price. Empty lines are passed over. n is how many were applied; an error is of
// the one after them and begins with "line", its place in payload from 1. Those behind it are not applied.
//
// It keeps nothing of payload.
func (l *Lane) Fold(payload []byte) (n int, err error) {
	x := &l.folding
	used, number := 0, 0
	for len(payload) > 0 && err == nil {
		read := 0
		for read < len(x) && len(payload) > 0 {
			line, rest, _ := bytes.Cut(payload, newline)
			payload = rest
			number++
			if len(line) == 0 {
				continue
			}
			f := &x[read]
			f.number = number
			if f.err = f.event.ParseView(line); f.err == nil {
				f.hashes = l.hashesOf(&f.event)
				l.touchClaim(f)
			}
			read++
		}
		used = max(used, read)
		for i := range x[:read] {
			f := &x[i]
			if err = f.err; err == nil {
				err = l.apply(&f.event, f.hashes)
			}
			if err != nil {
				err = fmt.Errorf("line %d: %w", f.number, err)
				break
			}
			n++
		}
	}
	clear(x[:used])
	return n, err
}

// touchClaim asks memory for what applying a claim will look at, without waiting for it.
func (l *Lane) touchClaim(f *foldLine) {
	if f.event.Type != wire.CouponClaimed {
		return
	}
	if c := l.find(f.event.Campaign); c != nil && c.indexes != nil {
		l.touched += c.indexes.ids.Touch(f.hashes.id) + c.indexes.customers.Touch(f.hashes.customer[0])
	}
}
