package simtest

import (
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// Stream is a stream as a server keeps it.
type Stream struct {
	Name   string
	Last   uint64
	Synced uint64 // what a power loss leaves
	Epoch  int    // rises whenever the server comes back with other contents

	messages []eventlog.Raw // the last of them has sequence Last
}

// First is the sequence of the first message, one more than Last if there is none.
func (s *Stream) First() uint64 { return s.Last - uint64(len(s.messages)) + 1 }

// Bounds are those of eventlog.Stream.Bounds.
func (s *Stream) Bounds() eventlog.Bounds {
	return eventlog.Bounds{First: s.First(), Last: s.Last, Messages: uint64(len(s.messages))}
}

// Append stores a message without a fence and returns its sequence. With synced it survives a power loss.
func (s *Stream) Append(subject string, h nats.Header, data []byte, at time.Time, synced bool) uint64 {
	s.Last++
	s.messages = append(s.messages, eventlog.Raw{Subject: subject, Header: h, Data: data, Sequence: s.Last, Time: at})
	if synced {
		s.Synced = s.Last
	}
	return s.Last
}

// Fence reports whether a write ends where its writer believes that the stream does, and follows the message that it names.
func (s *Stream) Fence(a eventlog.Attempt) (number, follows bool) {
	last := ""
	if n := len(s.messages); n > 0 {
		last = s.messages[n-1].Header.Get(jetstream.MsgIDHeader)
	}
	return a.Expected == s.Last, a.After == "" || a.After == last
}

// Write stores an attempt as the wire would carry it: the sender's copy is its own.
func (s *Stream) Write(subject string, a eventlog.Attempt, at time.Time, synced bool) uint64 {
	h := nats.Header{}
	for name, values := range a.Header {
		h[name] = slices.Clone(values)
	}
	if a.ID != "" {
		h.Set(jetstream.MsgIDHeader, a.ID)
	}
	return s.Append(subject, h, slices.Clone(a.Payload), at, synced)
}

// Get reads one message with the errors of eventlog.Stream.Get.
func (s *Stream) Get(sequence uint64) (eventlog.Raw, error) {
	switch {
	case sequence > s.Last:
		return eventlog.Raw{}, fmt.Errorf("message %d of %s, which ends at %d: %w", sequence, s.Name, s.Last, eventlog.ErrLostTail)
	case sequence < s.First():
		return eventlog.Raw{}, fmt.Errorf("message %d of %s, which starts at %d: %w", sequence, s.Name, s.First(), eventlog.ErrTrimmed)
	}
	return s.messages[sequence-s.First()], nil
}

// Trim removes messages before sequence.
func (s *Stream) Trim(before uint64) {
	if before > s.First() {
		s.messages = slices.Clone(s.messages[min(before-s.First(), uint64(len(s.messages))):])
	}
}

// Copy is a backup.
func (s *Stream) Copy() Stream {
	c := *s
	c.messages = slices.Clone(s.messages)
	return c
}

// Restore puts a backup back.
func (s *Stream) Restore(from Stream) {
	epoch := s.Epoch + 1
	*s = from.Copy()
	s.Epoch = epoch
}

// Cut loses everything after sequence.
func (s *Stream) Cut(last uint64) {
	last = max(last, s.First()-1)
	s.messages = slices.Clone(s.messages[:uint64(len(s.messages))-(s.Last-last)])
	s.Last, s.Synced = last, last
	s.Epoch++
}
