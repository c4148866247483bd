package sim

import (
	"bytes"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// Heal ends all trouble and looks at what is left: everything ordered is decided, every retry gets the answer
// they got before, and the owner's state is the fold of the log.
func (w *world) Heal() {
	w.Note("the world heals")
	w.full, w.skew = false, 0
	for _, p := range w.processes {
		p.paused, p.skew = false, 0
		p.leave(dead)
	}
	w.Now = w.Now.Add(time.Minute) // every command's stamp is in the past, every election over
	for w.InFlight() > 0 {
		w.ArriveNext()
	}
	w.judge.look()
	p := w.processes[0]
	p.phase = idle
	w.settle(p)
	for _, o := range w.crowd.ops {
		if o.heard = o.due; !o.due {
			w.crowd.send(o)
		}
	}
	w.settle(p)
	for _, o := range w.crowd.ops {
		if !o.heard && w.Found == nil {
			w.Violate(stuck, "%s %s was sent and not answered", o.kind, o.id)
		}
	}
	if w.Found == nil && p.phase == working && p.Settled() {
		w.compare(p)
	}
}

// settle lets one owner work until nothing is left to do.
func (w *world) settle(p *process) {
	for range 1_500 {
		switch {
		case w.Found != nil:
			return
		case w.InFlight() > 0:
			w.ArriveNext()
		case p.phase == working && p.Settled() && p.Covered() == w.commands.Last:
			return
		case !p.next():
			w.Now = w.Now.Add(10 * time.Millisecond) // it waits before it looks again
		}
		w.judge.look()
	}
	w.Violate(stuck, "%s covers %d of %d commands", p.name, p.Covered(), w.commands.Last)
}

// compare holds the owner's state against a plain fold of the whole log.
func (w *world) compare(p *process) {
	fold := domain.NewLane(laneOptions)
	judge := eventlog.Events(nil, 0).In(w.log).JudgeWith(nil)
	for seq := uint64(1); seq <= w.events.Last; seq++ {
		raw, err := w.events.Get(seq)
		if err != nil {
			w.Violate("broken simulation", "%v", err)
			return
		}
		m, err := judge.Read(&raw)
		if err != nil {
			continue // foreign
		}
		for _, line := range eventlog.Lines(m.Payload) {
			var ev wire.Event
			err := wire.ParseEvent(line, &ev)
			if err == nil {
				err = fold.Apply(&ev)
			}
			if err != nil {
				w.Violate(theFold, "message %d: %v", seq, err)
				return
			}
		}
		fold.Advance(wire.At(m.LaneTime))
	}
	var a, b bytes.Buffer
	if _, err := fold.Freeze().WriteTo(&a); err != nil {
		w.Violate("broken simulation", "%v", err)
	}
	if _, err := p.State().Freeze().WriteTo(&b); err != nil {
		w.Violate("broken simulation", "%v", err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		w.Violate(theFold, "the owner's state has %d bytes, the fold %d, or they differ", b.Len(), a.Len())
	}
}
