// Package lanetest drives a real lane of the domain in tests of the scheduler.
//
// Owner: the test. It keeps nothing, so a crash loses nothing.
package lanetest

import (
	"fmt"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Lane is a lane of the domain, driven by command lines. Its events are what timers fold.
type Lane struct {
	*domain.Lane
	ids int
}

// New makes a lane without campaigns.
func New() *Lane { return &Lane{Lane: domain.NewLane(domain.LaneOptions{Lanes: 1})} }

// T is what a failure is reported to.
type T interface{ Fatalf(string, ...any) }

// Do decides one command, given as the fields of its line without the id, and returns the events as a reader of the log
// sees them.
func (l *Lane) Do(t T, at wire.Instant, format string, args ...any) []wire.Event {
	l.ids++
	line := fmt.Sprintf(`{"id":"c-%d",`, l.ids) + fmt.Sprintf(format, args...) + "}"
	var cmd wire.Command
	if err := wire.ParseCommand([]byte(line), wire.Defaults{}, &cmd); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return l.Events(t, at, &cmd)
}

// Events decides one command and returns the events as a reader of the log sees them.
func (l *Lane) Events(t T, at wire.Instant, cmd *wire.Command) []wire.Event {
	made, _ := l.Lane.Decide(cmd, at, nil)
	read := make([]wire.Event, len(made))
	for i := range made {
		line := made[i].AppendJSON(nil)
		if err := wire.ParseEvent(line, &read[i]); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	return read
}
