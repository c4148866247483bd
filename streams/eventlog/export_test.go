package eventlog

import "time"

// LookEvery lets tests hold feeds against their stream more often. The function takes it back.
func LookEvery(d time.Duration) (back func()) {
	was := lookEvery
	lookEvery = d
	return func() { lookEvery = was }
}
