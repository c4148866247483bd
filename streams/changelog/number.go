package changelog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
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

// Number parses a key as Key writes it.
func Number(key string) (uint64, bool) {
	digits, ok := strings.CutPrefix(key, keyPrefix)
	if !ok || len(digits) > mostDigits {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil && n > 0 && Key(n) == key
}

// Numbers are the numbers of the changes folded so far.
type Numbers struct {
	// Last is the highest, except those that are too far above the one before.
	Last uint64

	far []uint64 // those too far ahead
}

// Add adds the next change's number, 0 = its key has none. It reports whether the number is at most MostAhead above the
// highest before it; a change with another one is not in force.
func (s *Numbers) Add(n uint64) bool {
	if n > s.Last+MostAhead {
		s.far = append(s.far, n)
		return false
	}
	s.Last = max(s.Last, n)
	return true
}

// Next is the number of the next change: one above the last, except numbers that are taken, which were too far ahead.
func (s *Numbers) Next() uint64 {
	n := s.Last + 1
	for slices.Contains(s.far, n) {
		n++
	}
	return n
}
