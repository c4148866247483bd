package snapstore

import (
	"cmp"
	"time"
)

// ReadFirst bounds the first attempt to read an object. Call it before the first Load.
func (s *Store) ReadFirst(d time.Duration) { s.readFirst = d }

// Tune makes parts smaller, and garbage old enough after so long; 0 = as usual.
func (s *Store) Tune(partSize int, orphanAge time.Duration) {
	s.partSize, s.orphanAge = partSize, cmp.Or(orphanAge, s.orphanAge)
}
