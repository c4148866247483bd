package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// store is a stream as a server keeps it.
type store struct {
	name     string
	messages []eventlog.Raw // the last of them has sequence last
	last     uint64
	synced   uint64 // what a power loss leaves
	epoch    int    // rises whenever the server comes back with other contents

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
	s.election = leaderless + election(w.rng.IntN(2))
	s.lag = min(s.last, uint64(1+w.rng.IntN(6)))
	s.until = w.now.Add(time.Duration(w.rng.Int64N(int64(maxElection))))
	w.note("%s have an election (%d), the copy lags by %d", s.name, s.election, s.lag)
	return true
}

// bounds reads the bounds as eventlog.Stream.Bounds does; ok is false while no leader answers.
func (w *world) bounds(s *store) (b eventlog.Bounds, ok bool) {
	b = s.bounds()
	if s.election == over || w.now.After(s.until) {
		s.election = over
		return b, true
	}
	b.Last -= min(s.lag, b.Last)
	b.First = min(b.First, b.Last+1)
	if s.election == leaderless && !w.bug.anyFollower {
		w.count("answer of a follower passed over")
		return b, false
	}
	w.count("bounds from a copy that lags")
	return b, true
}

// read reads one message as eventlog.Stream.Get does, which is answered by a leader only; it may be one that was deposed.
func (w *world) read(s *store, sequence uint64) (eventlog.Raw, error) {
	if s.election == deposed && !w.now.After(s.until) && sequence+s.lag > s.last {
		return eventlog.Raw{}, fmt.Errorf("message %d of %s, which ends before it in this copy: %w", sequence, s.name, eventlog.ErrLostTail)
	}
	return s.get(sequence)
}

func (s *store) first() uint64 { return s.last - uint64(len(s.messages)) + 1 }

func (s *store) bounds() eventlog.Bounds {
	return eventlog.Bounds{First: s.first(), Last: s.last, Messages: uint64(len(s.messages))}
}

// append stores a message and returns its sequence.
func (s *store) append(subject string, h nats.Header, data []byte, at time.Time) uint64 {
	s.last++
	s.messages = append(s.messages, eventlog.Raw{Subject: subject, Header: h, Data: data, Sequence: s.last, Time: at})
	return s.last
}

// get reads one message with the errors of eventlog.Stream.Get.
func (s *store) get(sequence uint64) (eventlog.Raw, error) {
	switch {
	case sequence > s.last:
		return eventlog.Raw{}, fmt.Errorf("message %d of %s, which ends at %d: %w", sequence, s.name, s.last, eventlog.ErrLostTail)
	case sequence < s.first():
		return eventlog.Raw{}, fmt.Errorf("message %d of %s, which begins at %d: %w", sequence, s.name, s.first(), eventlog.ErrTrimmed)
	}
	return s.messages[sequence-s.first()], nil
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

// trim removes messages before sequence.
func (s *store) trim(before uint64) {
	if before > s.first() {
		s.messages = slices.Clone(s.messages[min(before-s.first(), uint64(len(s.messages))):])
	}
}

// copy is a backup.
func (s *store) copy() store {
	c := *s
	c.messages = slices.Clone(s.messages)
	return c
}

// restore puts a backup back.
func (s *store) restore(from store) {
	epoch := s.epoch + 1
	*s = from.copy()
	s.epoch = epoch
}

// cut loses everything behind sequence.
func (s *store) cut(last uint64) {
	if last < s.first()-1 {
		last = s.first() - 1
	}
	s.messages = slices.Clone(s.messages[:uint64(len(s.messages))-(s.last-last)])
	s.last, s.synced = last, last
	s.epoch++
}
