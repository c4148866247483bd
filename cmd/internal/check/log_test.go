package check

import (
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

func TestStepsCoverTheCommandsWithoutGapOrOverlap(t *testing.T) {
	message := func(first, last, rebase uint64) *eventlog.Message {
		return &eventlog.Message{Header: eventlog.Header{Commands: [2]uint64{first, last}, Rebase: rebase}}
	}
	for _, c := range []struct {
		previous, next *eventlog.Message
		want           string
	}{
		{nil, message(1, 3, 0), ""},
		{nil, message(2, 3, 0), "the first one covers commands from 2"},
		{nil, message(5, 4, 5), ""},
		{message(1, 3, 0), message(4, 4, 0), ""},
		{message(1, 3, 0), message(5, 5, 0), "does not follow"},
		{message(1, 3, 0), message(3, 5, 0), "does not follow"},
		{message(1, 3, 0), message(9, 8, 9), ""},
	} {
		f := NewFold()
		f.previous = c.previous
		f.checkOrder(c.next)
		broken := strings.Join(f.Violations, "\n")
		if (c.want == "") != (broken == "") || !strings.Contains(broken, c.want) {
			t.Errorf("%v after %v: %q, want %q", c.next.Commands, c.previous, broken, c.want)
		}
	}
}
