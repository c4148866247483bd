package lane

import "time"

// ConsiderEvery lets tests have lanes think of snapshots more often. The function takes it back.
func ConsiderEvery(d time.Duration) (back func()) {
	was := considerEvery
	considerEvery = d
	return func() { considerEvery = was }
}
