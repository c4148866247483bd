package domain

import (
	"bytes"
	"fmt"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Fold parses the event lines of a message and applies them in order, like ParseEvent and Apply of each, but without copying
// texts, which halves the cost. Empty lines are skipped. n is how many were applied; an error belongs to the one after them
// and starts with "line" and its number in payload, from 1. The lines after it are not applied.
//
// It keeps no reference to payload.
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
				l.prefetchClaim(f)
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

// prefetchClaim reads the memory that applying a claim needs, without waiting for it.
func (l *Lane) prefetchClaim(f *foldLine) {
	if f.event.Type != wire.CouponClaimed {
		return
	}
	if c := l.find(f.event.Campaign); c != nil && c.indexes != nil {
		l.prefetched += c.indexes.ids.Prefetch(f.hashes.id) + c.indexes.customers.Prefetch(f.hashes.customer[0])
	}
}

var newline = []byte{'\n'}
