package domain

import (
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/linetest"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/domain/worldtest"
)

// FuzzStep: a step answers whatever line comes, and the events it makes can be read.
func FuzzStep(f *testing.F) {
	for _, line := range []string{linetest.Claim, linetest.Redeem, linetest.Create, linetest.Update, linetest.Remind, linetest.Import, linetest.Extend, linetest.Expire, linetest.Due} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		step := NewStep(testLane())
		step.Add(Message{Payload: line, Scope: wire.ScopeTrusted}, start, nil)
		step.Close()
		checkEvents(t, step.Events)
	})
}

// FuzzApply: applying an event that could be read is an error or a change, never a panic.
func FuzzApply(f *testing.F) {
	for seed := range uint64(2) {
		for _, ev := range newWorld(worldtest.Random(seed)).run(testLane(), 120) {
			f.Add(ev.AppendJSON(nil))
		}
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var ev wire.Event
		if err := wire.ParseEvent(line, &ev); err != nil {
			return
		}
		l := testLane()
		newWorld(worldtest.Random(1)).run(l, 30)
		_ = l.Apply(&ev)
	})
}
