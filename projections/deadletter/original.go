package deadletter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// Source reads one message of a stream: eventlog.Commands(js, lane).Get or eventlog.Events(js, lane).Get, as the dead
// letter's stream says.
type Source func(ctx context.Context, l *Letter, sequence uint64) (eventlog.Raw, error)

// Original is the line that a dead letter quotes.
type Original struct {
	// Text is the line in full, or of a whole message all of its lines. Where Missing says why that is not to be had, it is
	// what the dead letter quotes.
	Text []byte
	// Subject is what it was published on, "" if that is not known any more.
	Subject string
	// Missing says why Text is a quote, nil if it is not. Cut: the quote is the beginning of something longer.
	Missing error
	Cut     bool
}

// errOther: another message stands where the dead letter points.
var errOther = errors.New("another message stands there now: the stream began anew")

// Original reads the line from the stream it stands in. Commands are purged from there after a while, events never.
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
		err = errOther
	}
	return Original{Text: []byte(quote), Missing: fmt.Errorf("reading message %d of stream %s: %w", l.Sequence, l.Stream, err), Cut: cut}
}

// mostParked is how much of an event line the tables keep.
const mostParked = 4 << 10

// ellipsis ends what a lane quotes of a longer line.
const ellipsis = "…"

// quote is what is kept of the line, and whether that is its beginning only.
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

// same says whether a line is the one that was quoted. What is no text was quoted as U+FFFD, so only what stands before
// is compared.
func same(line []byte, quote string, cut bool) bool {
	if before, _, odd := strings.Cut(quote, "\uFFFD"); odd {
		quote, cut = before, true
	}
	if cut {
		return bytes.HasPrefix(line, []byte(quote))
	}
	return string(line) == quote
}
