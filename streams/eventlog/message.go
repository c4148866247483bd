package eventlog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TimeLayout is how headers write times: RFC 3339, UTC, always six decimals.
const TimeLayout = "2006-01-02T15:04:05.000000Z"

var (
	// ErrForeign is the kind of a message that scrip did not write: its seal or its headers are missing or wrong. Readers
	// ignore it and raise an alarm.
	ErrForeign = errors.New("message without a valid seal or valid scrip headers")
	// ErrNewerFormat is the kind of a message written by a newer scrip. It is never skipped: the reader stops.
	ErrNewerFormat = errors.New("log format newer than this program")
	// ErrUnreadable is the kind of a message that carries scrip's seal and that this program does not understand although
	// it knows its format. It is never skipped either.
	ErrUnreadable = errors.New("sealed message that this program does not understand")
	// ErrSkipped is the kind of a message in the skip list. It is an ErrForeign.
	ErrSkipped = fmt.Errorf("%w, or in the skip list", ErrForeign)
)

// Position is a position in the log. The zero Position is before the first message.
type Position struct {
	// Log is the log's UUID.
	Log string `json:"log"`
	// Lane is the lane's number.
	Lane int `json:"lane"`
	// Sequence is the stream sequence of the last message seen, 0 for none.
	Sequence uint64 `json:"sequence"`
	// Digest is that message's Message.Digest, empty for none.
	Digest string `json:"digest"`
}

// Message is one valid message of an event or reminder stream.
type Message struct {
	Header
	// Sequence is the stream sequence, Time the stored timestamp.
	Sequence uint64
	Time     time.Time
	// Payload holds the lines, possibly none. It must not be changed.
	Payload []byte

	raw nats.Header
}

// Next returns the first command sequence of the step after this one.
func (m *Message) Next() uint64 { return m.Commands[1] + 1 }

// Trace is the traceparent of its step's span, "" = it was not sampled.
func (m *Message) Trace() string { return m.raw.Get(topology.HeaderStepTrace) }

// Digest identifies the message's content, see Digest. It hashes the payload: call it at checkpoints, not per message.
func (m *Message) Digest() string { return Digest(m.raw, m.Payload) }

// Position returns the position of this message in a log's lane.
func (m *Message) Position(log string, lane int) Position {
	return Position{Log: log, Lane: lane, Sequence: m.Sequence, Digest: m.Digest()}
}

// Follows reports whether next continues where m ended: its commands are the ones directly after, or it is a rebase.
func (m *Message) Follows(next *Message) bool {
	return next.Rebase != 0 || next.Commands[0] == m.Next()
}

// Digest is the first 16 bytes, in hex, of the SHA-256 over the Scrip- headers, sorted, each as "name: value\r\n", an
// empty line "\r\n", and the payload. Headers that NATS adds are not part of it, so that it survives backup and restore.
func Digest(h nats.Header, payload []byte) string { return Hash(h, payload)[:32] }

// Hash is the whole of which Digest is the first half: 64 hex digits.
func Hash(h nats.Header, payload []byte) string {
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if !strings.HasPrefix(name, "Scrip-") {
			continue
		}
		for _, value := range h[name] {
			sum.Write([]byte(name + ": " + value + "\r\n"))
		}
	}
	sum.Write([]byte("\r\n"))
	sum.Write(payload)
	return hex.EncodeToString(sum.Sum(nil))
}

// Parse reads a message of an event stream, of any author: a Judge decides whether it counts. Errors are ErrForeign or
// ErrNewerFormat.
func Parse(h nats.Header, payload []byte, sequence uint64, stored time.Time) (Message, error) {
	m, err := parseCommon(h, payload, sequence, stored)
	if err != nil {
		return Message{}, err
	}
	p := headerParser{h: h, sequence: sequence}
	m.Commands = p.span(topology.HeaderCommands)
	m.LaneTime = p.time(topology.HeaderTime)
	if h.Get(topology.HeaderRebase) != "" {
		m.Rebase = p.number(topology.HeaderRebase)
		p.require(topology.HeaderRebase, m.Rebase > 0 && m.Rebase == m.Commands[0], "the first of "+topology.HeaderCommands)
	}
	covers := m.Commands[1] >= m.Commands[0]
	none := m.Rebase != 0 && m.Next() == m.Commands[0] // a rebase may cover nothing
	p.require(topology.HeaderCommands, m.Commands[0] > 0 && (covers || none), "<first>-<last> with first ≤ last")
	if covers || h.Get(topology.HeaderCommandTime) != "" {
		m.CommandTime = p.time(topology.HeaderCommandTime)
	}
	return m, p.err
}

// ParseReminder is Parse for a reminder stream.
func ParseReminder(h nats.Header, payload []byte, sequence uint64, stored time.Time) (Message, error) {
	m, err := parseCommon(h, payload, sequence, stored)
	if err != nil {
		return Message{}, err
	}
	p := headerParser{h: h, sequence: sequence}
	m.Source = p.source(topology.HeaderSource)
	m.SourceDigest, m.Hold = h.Get(topology.HeaderSourceDigest), h.Get(topology.HeaderHold) != ""
	p.require(topology.HeaderSourceDigest, isDigest(m.SourceDigest), "32 hex digits")
	if h.Get(topology.HeaderTime) != "" {
		m.LaneTime = p.time(topology.HeaderTime)
	}
	return m, p.err
}

// parseCommon reads the headers of all messages. Those of a newer format may have any form.
func parseCommon(h nats.Header, payload []byte, sequence uint64, stored time.Time) (Message, error) {
	p := headerParser{h: h, sequence: sequence}
	format := p.number(topology.HeaderFormat)
	if p.err == nil && format > topology.Format {
		return Message{}, newer(sequence, format)
	}
	p.require(topology.HeaderFormat, format > 0, "a number from 1")
	m := Message{Header: Header{Owner: h.Get(topology.HeaderOwner), Priority: h.Get(topology.HeaderPriority)}, Sequence: sequence, Time: stored, Payload: payload, raw: h}
	p.require(topology.HeaderOwner, m.Owner != "", "the writer's nonce")
	return m, p.err
}

func newer(sequence, format uint64) error {
	return fmt.Errorf("%w: message %d has format %d, this program knows %d; use a newer scrip", ErrNewerFormat, sequence, format, topology.Format)
}

func isDigest(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 16
}

// headerParser keeps the first error.
type headerParser struct {
	h        nats.Header
	sequence uint64
	err      error
}

func (p *headerParser) require(name string, ok bool, want string) {
	if !ok && p.err == nil {
		p.err = fmt.Errorf("%w: message %d: %s is %q, expected %s", ErrForeign, p.sequence, name, p.h.Get(name), want)
	}
}

func (p *headerParser) number(name string) uint64 {
	n, ok := parseNumber(p.h.Get(name))
	p.require(name, ok, "a number")
	return n
}

func (p *headerParser) span(name string) [2]uint64 {
	a, b, _ := strings.Cut(p.h.Get(name), "-")
	first, ok1 := parseNumber(a)
	last, ok2 := parseNumber(b)
	p.require(name, ok1 && ok2, "<first>-<last>")
	return [2]uint64{first, last}
}

func (p *headerParser) source(name string) Source {
	parts := strings.Split(p.h.Get(name), ":")
	p.require(name, len(parts) == 3, "<event seq>:<line>:<last r>")
	if p.err != nil {
		return Source{}
	}
	seq, ok1 := parseNumber(parts[0])
	line, ok2 := parseNumber(parts[1])
	r, ok3 := parseNumber(parts[2])
	p.require(name, ok1 && ok2 && ok3 && seq > 0 && line < 1<<31, "<event seq>:<line>:<last r>")
	return Source{Sequence: seq, Line: int(line), LastR: r}
}

func (p *headerParser) time(name string) time.Time {
	t, err := time.Parse(TimeLayout, p.h.Get(name))
	p.require(name, err == nil && len(p.h.Get(name)) == len(TimeLayout), "a time like "+TimeLayout)
	return t
}

// parseNumber accepts decimal digits only, without leading zeros.
func parseNumber(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil && (s == "0" || s[0] != '0')
}

// Lines iterates over the lines of a payload, numbered from 0, without their newline and without copying. The last line may
// lack its newline; empty lines are omitted but counted, so that a line's number is its index in the message.
func Lines(payload []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for n := 0; len(payload) > 0; n++ {
			line := payload
			if i := bytes.IndexByte(payload, '\n'); i >= 0 {
				line, payload = payload[:i], payload[i+1:]
			} else {
				payload = nil
			}
			if len(line) > 0 && !yield(n, line) {
				return
			}
		}
	}
}
