package sim

import (
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/simtest"
)

// store is a stream as a replicated server keeps it.
type store struct {
	simtest.Stream

	// While the replicas elect a leader another replica answers, from a copy without the last messages.
	election election
	lag      uint64
	until    time.Time // when the election is over
}

type election int

const (
	over       election = iota
	leaderless          // a follower answers, and names no leader
	deposed             // the leader before answers, which does not know of its successor
)

// maxElection is how long an election takes at most: a third of the time over which a contradiction is looked at again,
// as with a real server.
const maxElection = lookAgainFor / 3

// elect makes the store have an election, for a while.
func (w *world) elect(s *store) bool {
	s.election = leaderless + election(w.Rng.IntN(2))
	s.lag = min(s.Last, uint64(1+w.Rng.IntN(6)))
	s.until = w.Now.Add(time.Duration(w.Rng.Int64N(int64(maxElection))))
	w.Note("%s have an election (%d), the copy lags by %d", s.Name, s.election, s.lag)
	return true
}

// bounds reads the bounds as eventlog.Stream.Bounds does; ok is false while no leader answers.
func (w *world) bounds(s *store) (b eventlog.Bounds, ok bool) {
	b = s.Bounds()
	if s.election == over || w.Now.After(s.until) {
		s.election = over
		return b, true
	}
	b.Last -= min(s.lag, b.Last)
	b.First = min(b.First, b.Last+1)
	if s.election == leaderless && !w.bug.anyFollower {
		w.Count("answer of a follower passed over", 1)
		return b, false
	}
	w.Count("bounds from a copy that lags", 1)
	return b, true
}

// read reads one message as eventlog.Stream.Get does, which is answered by a leader only; it may be one that was deposed.
func (w *world) read(s *store, sequence uint64) (eventlog.Raw, error) {
	if s.election == deposed && !w.Now.After(s.until) && sequence+s.lag > s.Last {
		return eventlog.Raw{}, fmt.Errorf("message %d of %s, which ends before it in this copy: %w", sequence, s.Name, eventlog.ErrLostTail)
	}
	return s.Get(sequence)
}

// verify is eventlog.Stream.Verify.
func (w *world) verify(s *store, log string, pos eventlog.Position) error {
	if pos.Log != log {
		return eventlog.ErrDiverged
	}
	raw, err := w.read(s, pos.Sequence)
	if err != nil {
		return err
	}
	if eventlog.Digest(raw.Header, raw.Data) != pos.Digest {
		return eventlog.ErrDiverged
	}
	return nil
}
