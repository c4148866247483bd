package snapstore

import "time"

// ReadFirst bounds the first attempt to read an object. Call it before the first Load.
func (s *Store) ReadFirst(d time.Duration) { s.readFirst = d }
