package protocol

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// TestWhatContradictsTheEvents: the events cover commands up to 9, which was stored at eight o'clock.
func TestWhatContradictsTheEvents(t *testing.T) {
	eight := time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)
	away := errors.New("no answer")
	covering := func(last uint64, stamped time.Time) *Term {
		o := New(Options{Log: "u", State: domain.NewLane(domain.LaneOptions{Lanes: 1})})
		if last > 0 {
			m := eventlog.Message{Header: eventlog.Header{Commands: [2]uint64{1, last}, CommandTime: stamped, LaneTime: eight}, Sequence: 3}
			if err := o.Fold(&m); err != nil {
				t.Fatal(err)
			}
			o.Folded(&m, 3)
		}
		return o
	}
	for _, c := range []struct {
		name        string
		term        *Term
		first, last uint64
		stored      time.Time
		err         error // of reading command 9
		want        string
	}{
		{"a new lane", covering(0, time.Time{}), 1, 0, time.Time{}, nil, ""},
		{"a new lane whose first commands are gone", covering(0, time.Time{}), 3, 5, time.Time{}, nil, "starts at 3"},
		{"the same command", covering(9, eight), 1, 12, eight.Add(400 * time.Nanosecond), nil, ""},
		{"purged up to there", covering(9, eight), 10, 12, time.Time{}, away, ""},
		{"nothing covered since a rebase", covering(9, time.Time{}), 1, 12, eight.Add(time.Hour), nil, ""},
		{"a lost tail", covering(9, eight), 1, 8, time.Time{}, nil, "ends at 8"},
		{"commands that are gone undecided", covering(9, eight), 11, 12, time.Time{}, nil, "starts at 11"},
		{"another command", covering(9, eight), 1, 12, eight.Add(time.Microsecond), nil, "the command stream is another one"},
		{"no answer", covering(9, eight), 1, 12, time.Time{}, away, "no answer"},
	} {
		err := c.term.Continues(eventlog.Bounds{First: c.first, Last: c.last}, func(sequence uint64) (time.Time, error) { return c.stored, c.err })
		switch stops := c.want != "" && c.want != "no answer"; {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		case stops != errors.Is(err, ErrStopped), stops && !strings.Contains(err.Error(), "--rebase 0"):
			t.Errorf("%s: an operator is needed: %t, %v", c.name, stops, err)
		}
	}
	gap := eventlog.Message{Header: eventlog.Header{Commands: [2]uint64{11, 12}, LaneTime: eight}, Sequence: 4}
	if err := covering(9, eight).Fold(&gap); !errors.Is(err, ErrStopped) || !strings.Contains(err.Error(), "covers commands from 11") {
		t.Errorf("a gap in the covered commands: %v", err)
	}
}
