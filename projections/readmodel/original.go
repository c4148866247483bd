package readmodel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// LetterID identifies a dead letter by the position of the line: SCRIP_CMD_0.12.3. If a command stream was created again and
// several have this position, that of the event is added: SCRIP_CMD_0.12.3@57.1.
type LetterID struct {
	Stream   string
	Sequence uint64
	Line     uint32
	// EventSequence and EventLine are 0 if they are not needed.
	EventSequence uint64
	EventLine     uint32

	lane int
}

func (id LetterID) String() string {
	s := fmt.Sprintf("%s.%d.%d", id.Stream, id.Sequence, id.Line)
	if id.EventSequence != 0 {
		s += fmt.Sprintf("@%d.%d", id.EventSequence, id.EventLine)
	}
	return s
}

// MarshalText returns String.
func (id LetterID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is ParseLetterID.
func (id *LetterID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseLetterID(string(text))
	return err
}

// ParseLetterID parses the result of String.
func ParseLetterID(s string) (id LetterID, err error) {
	wrong := fmt.Errorf("%q is not the id of a dead letter; ids are like %s.12.3, as `scrip deadletter list` shows them", s, topology.CmdStream(0))
	name, event, exact := strings.Cut(s, "@")
	parts := strings.Split(name, ".")
	if len(parts) != 3 {
		return id, wrong
	}
	id.Stream = parts[0]
	number, command := strings.CutPrefix(id.Stream, topology.CmdStreamPrefix)
	if !command {
		var isEvent bool
		if number, isEvent = strings.CutPrefix(id.Stream, topology.EvtStreamPrefix); !isEvent {
			return id, wrong
		}
	}
	lane, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return id, wrong
	}
	id.lane = int(lane)
	place := func(sequence, line string, into *uint64, intoLine *uint32) bool {
		a, err1 := strconv.ParseUint(sequence, 10, 63)
		b, err2 := strconv.ParseUint(line, 10, 32)
		*into, *intoLine = a, uint32(b)
		return err1 == nil && err2 == nil && a > 0
	}
	if !place(parts[1], parts[2], &id.Sequence, &id.Line) {
		return id, wrong
	}
	if exact {
		sequence, line, _ := strings.Cut(event, ".")
		if !place(sequence, line, &id.EventSequence, &id.EventLine) {
			return id, wrong
		}
	}
	return id, nil
}

// Source reads one message of the dead letter's stream: eventlog.Commands(js, lane).Get or eventlog.Events(js,
// lane).Get.
type Source func(ctx context.Context, l *Letter, sequence uint64) (eventlog.Raw, error)

// Original is the line that a dead letter quotes.
type Original struct {
	// Text is the complete line, or for a whole message all of its lines. If Missing is not nil, it is the dead
	// letter's quote.
	Text []byte
	// Subject is the subject it was published on, "" if unknown.
	Subject string
	// Missing is why Text is a quote, otherwise nil. Cut: the quote is the first part of a longer line.
	Missing error
	Cut     bool
}

// errOtherLine: another message is at the dead letter's position.
var errOtherLine = errors.New("another message is at this position now: the stream was created again")

// Original reads the line from its stream. Commands are purged after a while, events never.
func (l *Letter) Original(ctx context.Context, read Source) Original {
	quote, cut := l.quote()
	raw, err := read(ctx, l, l.Sequence)
	if err == nil {
		text := raw.Data
		if l.Line > 0 {
			text = lineOf(raw.Data, l.Line)
		}
		if text != nil && same(text, quote, cut) {
			return Original{Text: text, Subject: raw.Subject}
		}
		err = errOtherLine
	}
	return Original{Text: []byte(quote), Missing: fmt.Errorf("reading message %d of stream %s: %w", l.Sequence, l.Stream, err), Cut: cut}
}

// ShownLetter is a dead letter with the line that it quotes.
type ShownLetter struct {
	Letter
	// Original is the whole line, or the rest that is still known.
	Original string `json:"original"`
	Subject  string `json:"subject,omitempty"`
	// Missing is why Original is only the quote of the dead letter.
	Missing string `json:"original_missing,omitempty"`
	Cut     bool   `json:"original_cut,omitempty"`
}

// Shown returns a dead letter with its line; masked without it, as LetterFilter.Masked has it.
func (l *Letter) Shown(ctx context.Context, read Source, masked bool) ShownLetter {
	if masked {
		l.Payload = ""
		return ShownLetter{Letter: *l}
	}
	original := l.Original(ctx, read)
	shown := ShownLetter{Letter: *l, Original: string(original.Text), Subject: original.Subject, Cut: original.Cut}
	if original.Missing != nil {
		shown.Missing = original.Missing.Error()
	}
	return shown
}

// mostParked is how many bytes of an event line the tables keep.
const mostParked = 4 << 10

// ellipsis ends a lane's quote of a longer line.
const ellipsis = "…"

// quote returns the stored part of the line, and whether it is incomplete.
func (l *Letter) quote() (text string, cut bool) {
	if l.IsEvent() {
		return l.Payload, len(l.Payload) > mostParked-4 // a character may have been cut
	}
	return strings.CutSuffix(l.Payload, ellipsis)
}

func lineOf(message []byte, number uint32) []byte {
	for n, line := range eventlog.Lines(message) {
		if uint32(n)+1 == number {
			return line
		}
	}
	return nil
}

// same reports whether a line is the quoted one. Bytes that are not text were quoted as U+FFFD, so only what precedes
// the first of them is compared.
func same(line []byte, quote string, cut bool) bool {
	if before, _, odd := strings.Cut(quote, "\uFFFD"); odd {
		quote, cut = before, true
	}
	if cut {
		return bytes.HasPrefix(line, []byte(quote))
	}
	return string(line) == quote
}
