package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

const (
	keyPrefix = "change."
	// keyDigits pads numbers so that keys sort in the order of changes.
	keyDigits = 10
	// mostDigits bounds a number to what fits 64 bits with room to spare.
	mostDigits = 18
	// MostAhead is how far a number may be above the highest before it. It guarantees that a next number exists, also after a
	// key was written by hand: 64 bits would allow a million million such jumps.
	MostAhead = 1_000_000
)

// Key is the key of change n.
func Key(n uint64) string { return keyPrefix + fmt.Sprintf("%0*d", keyDigits, n) }

// number parses a key as Key writes it; 0 = it is another one.
func number(key string) uint64 {
	digits, ok := strings.CutPrefix(key, keyPrefix)
	if !ok || len(digits) > mostDigits {
		return 0
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || Key(n) != key {
		return 0
	}
	return n
}

// Change is one change, as every server reads it.
type Change[R any] struct {
	// N numbers the changes from 1, without gaps unless a key was written by hand. 0 where the key is no number.
	N uint64
	// Revision is the bucket's, rising. 0 before the change is stored.
	Revision uint64
	Record   R
	By       string
	At       time.Time
	// Ignored is the reason why the change is not in force, nor ever was; "" where it is or was.
	Ignored string
	// Value is what the bucket holds.
	Value []byte
}

// stored is the form in which a change is stored.
type stored[R any] struct {
	Record R         `json:"change"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
}

// Encode writes Value.
func (c *Change[R]) Encode() error {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	err := e.Encode(stored[R]{c.Record, c.By, c.At.UTC()})
	c.Value = bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
	return err
}

// decode reads Value. An unknown field may change the meaning of the known ones, so such a change is kept only if kept allows it.
func (c *Change[R]) decode(kept func(*R) bool) error {
	var s stored[R]
	d := json.NewDecoder(bytes.NewReader(c.Value))
	d.DisallowUnknownFields()
	err := d.Decode(&s)
	if err == nil && d.More() {
		err = errors.New("there is more text after the change")
	}
	if err != nil {
		var loose stored[R]
		if kept == nil || json.Unmarshal(c.Value, &loose) != nil || !kept(&loose.Record) {
			return fmt.Errorf("not understood, written by hand or by a newer version: %w", err)
		}
		s = loose
	}
	c.Record, c.By = s.Record, s.By
	at := s.At.UTC()
	if at.Year() < 2 || at.Year() > 9999 { // year 1: none; RFC 3339 has no others
		return errors.New("at must be a time as RFC 3339")
	}
	c.At = at
	return wire.CheckBy("by", c.By)
}

// Fold is the fold of the changes up to one. It is not safe for use by several goroutines at once.
type Fold[S, R any] struct {
	State S
	// Changes are all of them, oldest first, the ignored ones with the reason. Ignored counts those.
	Changes []Change[R]
	Ignored int

	spec *Spec[S, R]
	last uint64 // the highest number, except those that are too far above the one before
}

// Last is the newest change, in force or ignored; zero = there is none.
func (f *Fold[S, R]) Last() (c Change[R]) {
	if n := len(f.Changes); n > 0 {
		c = f.Changes[n-1]
	}
	return c
}

// Apply folds the next message in the order of revisions.
func (f *Fold[S, R]) Apply(m Message) Change[R] {
	c := Change[R]{N: number(m.Key), Revision: m.Revision, Value: m.Value}
	near := c.N <= f.last+MostAhead
	if near {
		f.last = max(f.last, c.N)
	}
	err := c.decode(f.spec.Kept)
	switch {
	case m.Deleted:
		err = errors.New("a deletion, and changes are never deleted")
	case c.N == 0:
		err = fmt.Errorf("its key %q is no number of a change, such as %s", wire.Shorten(m.Key, 60), Key(1))
	case err != nil:
	case !near:
		err = fmt.Errorf("its number is more than %d above %d, the highest before it", MostAhead, f.last)
	default:
		err = f.spec.Take(f.State, &c)
	}
	if err != nil {
		c.Ignored = err.Error()
		f.Ignored++
	}
	f.Changes = append(f.Changes, c)
	return c
}

// next is the number of the next change: one above the last, except numbers that are taken, which were too far ahead.
func (f *Fold[S, R]) next() uint64 {
	n := f.last + 1
	for slices.ContainsFunc(f.Changes, func(c Change[R]) bool { return c.N == n }) {
		n++
	}
	return n
}
