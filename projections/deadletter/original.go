package deadletter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

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
	// Missing is why Text is a quote, otherwise nil. Cut: the quote is the beginning of a longer line.
	Missing error
	Cut     bool
}

// errOther: another message is at the dead letter's position.
var errOther = errors.New("another message is at this position now: the stream was created again")

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
		err = errOther
	}
	return Original{Text: []byte(quote), Missing: fmt.Errorf("reading message %d of stream %s: %w", l.Sequence, l.Stream, err), Cut: cut}
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
