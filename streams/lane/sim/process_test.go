package sim

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"time"
	"unsafe"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lane/protocol"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// The pauses between looks at a contradiction are those of a replicated log, in a world that moves faster.
const (
	faster       = 30
	lookAgainFor = 30 * time.Second / faster
	// A lane is loaded again so often, within that time, because of what its feed shows.
	maxDoubts    = 2
	doubtsWithin = time.Minute / faster
)

// maxAhead is how far commands may be stamped ahead of an owner's clock.
const maxAhead = 5 * time.Second

type phase string

const (
	dead    phase = "dead"
	idle    phase = "idle"    // running, about to load
	loaded  phase = "loaded"  // folded the log, about to open the feed
	working phase = "working" // reads, decides, writes, answers
	stopped phase = "stopped" // an operator is needed
)

// process is a server that may own the lane, or believe so.
type process struct {
	*protocol.Term
	w       *world
	name    string
	phase   phase
	paused  bool
	skew    time.Duration // of its clock
	taking  int           // packets to an earlier term are dropped
	rebase  bool          // an operator requested it, or left it in the start line
	looks   int           // contradictions seen in a row since the state was loaded
	lookAt  time.Time     // when to look again
	doubts  int           // how often the lane was loaded again for what its feed shows
	doubted time.Time     // when it was last

	cursor   uint64 // last command taken in
	cursorAt time.Time
	epoch    int // of the command store when it was last looked at
	flights  []*flight
	pretend  uint64 // bug quietRepeats: commands up to here are decided a second time
}

// flight is a write without a result yet.
type flight struct {
	write *protocol.Write
	try   int // an ack of an earlier publish is dropped
	state flightState
	seq   uint64 // acknowledged
	last  uint64 // where the stream ended at the request

	assumed bool // bug pipelined: the protocol was given a success
}

type flightState int

const (
	waiting flightState = iota
	acked
	unknown // or refused: to be resolved
	endRead // the end of the stream is known, the message after the fence not yet
)

// next does the next thing this process can do; false if there is none.
func (p *process) next() bool {
	switch p.phase {
	case dead:
		p.phase = idle
	case idle:
		p.load()
	case loaded:
		if p.looks > 0 && p.w.Now.Before(p.lookAt) {
			return false
		}
		p.open()
	case stopped:
		p.rebase, p.phase = true, idle
	case working:
		// In the order of chance, not of wisdom: whatever is ready may come first.
		doings := []func() bool{p.collect, p.publish, p.land, p.save, p.purge}
		for _, i := range p.w.Rng.Perm(len(doings)) {
			if doings[i]() {
				return true
			}
		}
		return false
	}
	return true
}

func (p *process) now() time.Time { return p.w.Now.Add(p.skew) }

// leave drops everything; next phase decides whether the process continues.
func (p *process) leave(next phase) {
	p.taking++
	p.flights = nil
	p.phase = next
	if next == dead {
		p.rebase = false
	}
}

// stop is a lane that refuses to guess, unless it is only that another owner went on.
func (p *process) stop(err error) {
	if p.outrun(err) {
		return
	}
	if !p.w.damaged {
		p.w.Violate(stops, "%s: %v", p.name, err)
	}
	p.w.Note("%s stops: %v", p.name, err)
	p.leave(stopped)
}

// doubt loads the lane again before it believes what its feed shows, as the lane does: another owner may
// have purged, and a copy that lags does not know that the events went on.
func (p *process) doubt(err error) {
	if p.w.Now.Sub(p.doubted) > doubtsWithin {
		p.doubts = 0
	}
	if p.doubts == maxDoubts || p.w.bug.hasty || p.w.bug.firstLook {
		p.stop(err)
		return
	}
	if p.outrun(err) {
		return
	}
	p.w.Count("loaded again in doubt", 1)
	p.w.Note("%s doubts: %v", p.name, err)
	p.doubts, p.doubted = p.doubts+1, p.w.Now
	p.leave(idle)
}

// outrun drops the state if the event stream went on under another owner, or if that cannot be learnt now.
func (p *process) outrun(err error) bool {
	end, ok := p.w.bounds(&p.w.events)
	if ok && (!p.Outrun(end.Last) || p.w.bug.hasty) {
		return false
	}
	p.w.Count("outrun", 1)
	p.w.Note("%s was outrun: %v", p.name, err)
	p.leave(idle)
	return true
}

// load folds the log after the newest snapshot that fits.
func (p *process) load() {
	w := p.w
	end, ok := w.bounds(&w.events)
	if !ok {
		return
	}
	p.taking++
	w.takings++
	p.Term = protocol.New(protocol.Options{
		Log: logID, Nonce: fmt.Sprintf("%s-%d", p.name, w.takings), State: domain.NewLane(laneOptions),
		Sealer: eventlog.Events(nil, 0).In(w.log).Sealer(),
	})
	for i := len(w.snapshots) - 1; i >= 0 && i >= len(w.snapshots)-2; i-- {
		s := w.snapshots[i]
		if !w.bug.anySnapshot && w.verify(&w.events, logID, s.mark.Position) != nil {
			w.Count("snapshot refused", 1)
			continue
		}
		state, err := domain.ReadLane(laneOptions, bytes.NewReader(s.bytes))
		if err != nil {
			w.Count("snapshot damaged", 1)
			continue
		}
		w.Count("snapshot used", 1)
		p.Restore(state, s.mark)
		break
	}
	judge := eventlog.Events(nil, 0).In(w.log).JudgeWith(nil)
	var last *eventlog.Message
	for seq := p.Sequence() + 1; seq <= end.Last; seq++ {
		raw, err := w.events.Get(seq)
		if err != nil {
			p.stop(err)
			return
		}
		m, err := judge.Read(&raw)
		if errors.Is(err, eventlog.ErrForeign) {
			continue
		}
		if err == nil {
			err = p.Fold(&m)
		}
		if err != nil {
			p.stop(err)
			return
		}
		last = &m
	}
	if !w.bug.anySnapshot {
		end.Last = max(end.Last, p.Sequence()) // the snapshot's message was found, so the copy that ends before it lags
	}
	p.Folded(last, end.Last)
	p.phase, p.looks = loaded, 0
	w.Note("%s loads: events to %d, commands to %d", p.Nonce(), p.Sequence(), p.Covered())
}

// open checks that the commands go on where the events end, rebases where they do not and it is requested, and opens the
// feed. A contradiction is looked at again before it is believed.
func (p *process) open() {
	w := p.w
	bounds, ok := w.bounds(&w.commands)
	if !ok {
		return
	}
	err := p.Continues(bounds, func(sequence uint64) (time.Time, error) {
		raw, err := w.read(&w.commands, sequence)
		return raw.Time, err
	})
	if err != nil && !w.bug.anyCommands {
		// Without the short pauses, which would only make the world slow.
		switch pauses := protocol.ContradictionPauses(true)[4:]; {
		case !errors.Is(err, protocol.ErrStopped):
			return // not answered
		case p.outrun(err):
			return
		case p.looks < len(pauses) && !w.bug.firstLook:
			w.Count("contradiction looked at again", 1)
			p.lookAt = w.Now.Add(pauses[p.looks] / faster)
			p.looks++
			return
		case !p.rebase:
			p.stop(err)
			return
		}
		p.rebase = false
		if !w.damaged {
			w.Violate(stops, "%s rebases: %v", p.name, err)
			return
		}
		if bounds, ok = w.bounds(&w.commands); !ok {
			p.rebase = true
			return
		}
		write, err := p.RebaseWrite(bounds, 0)
		if err != nil {
			p.stop(err)
			return
		}
		w.Count("rebase", 1)
		// It is waited for like any write, and then the loop starts: see landed.
		p.phase = working
		p.cursor, p.pretend = bounds.Last, bounds.Last
		p.look()
		p.flights = append(p.flights, &flight{write: write})
		p.transmit(p.flights[0])
		return
	}
	p.rebase = false // not the case
	p.cursor = p.Covered()
	if b := w.bug; b.ackPosition || b.quietRepeats {
		// A consumer's position, acknowledged a while ago.
		p.pretend = p.cursor
		p.cursor -= min(p.cursor-min(p.cursor, w.commands.First()-1), uint64(w.Rng.IntN(6)))
	}
	p.look()
	p.phase = working
}

// look remembers what the feed delivered last.
func (p *process) look() {
	p.epoch, p.cursorAt = p.w.commands.Epoch, time.Time{}
	if raw, err := p.w.commands.Get(p.cursor); err == nil {
		p.cursorAt = raw.Time
	}
}

// feed reads the command after the cursor as eventlog.Feed does: in order, without gaps, and looking back whenever the
// server was away.
func (p *process) feed() (raw eventlog.Raw, ok bool, err error) {
	s := &p.w.commands
	if p.epoch != s.Epoch {
		before, err := s.Get(p.cursor)
		switch {
		case p.cursor == 0 || errors.Is(err, eventlog.ErrTrimmed) && s.First() <= p.cursor+1:
		case err != nil:
			return raw, false, err
		case !p.cursorAt.IsZero() && !before.Time.Equal(p.cursorAt):
			return raw, false, eventlog.ErrDiverged
		}
		p.epoch = s.Epoch
	}
	if p.cursor >= s.Last {
		return raw, false, nil
	}
	if raw, err = s.Get(p.cursor + 1); err != nil {
		return raw, false, &eventlog.GapError{Stream: s.Name, After: p.cursor, Next: s.First()}
	}
	return raw, true, nil
}

// collect decides some of what has arrived.
func (p *process) collect() bool {
	did := false
	for range 1 + p.w.Rng.IntN(4) {
		if p.StepFull() {
			break
		}
		raw, ok, err := p.feed()
		if err != nil {
			p.doubt(p.Broken(err))
			return true
		}
		if !ok {
			break
		}
		c, err := protocol.CommandOf(&raw)
		if err != nil {
			p.w.Violate("broken simulation", "%v", err)
			return true
		}
		if !p.Fits(&c) {
			break
		}
		if c.Early(p.now(), maxAhead) > 0 {
			p.w.Count("waited for the clock", 1)
			break
		}
		if p.w.bug.wildClock {
			setClock(p.State(), wire.At(c.Stamped))
		}
		if p.w.bug.freeRepeats {
			p.answerRepeat(&c)
		}
		p.Decide(&c)
		p.cursor, p.cursorAt, did = raw.Sequence, raw.Time, true
	}
	return did
}

// answerRepeat answers a command at once if it changes nothing: nothing needs to be written for it, one might think.
func (p *process) answerRepeat(c *protocol.Command) {
	var buf bytes.Buffer
	if _, err := p.State().Freeze().WriteTo(&buf); err != nil {
		p.w.Violate("broken simulation", "%v", err)
		return
	}
	state, err := domain.ReadLane(laneOptions, &buf)
	if err != nil {
		p.w.Violate("broken simulation", "%v", err)
		return
	}
	step := domain.NewStep(state)
	outcomes := step.Add(domain.Message{Sequence: c.Sequence, Scope: c.Scope, Campaign: c.Campaign, Payload: c.Payload}, wire.At(c.Stamped), nil)
	if step.Close(); step.Lines == 0 && c.Reply != "" {
		p.answer([]protocol.Reply{{Subject: c.Reply, Payload: outcomes}})
		c.Reply = ""
	}
}

// setClock breaks the promise of domain.Lane.Advance.
func setClock(l *domain.Lane, at wire.Instant) {
	clock := reflect.ValueOf(l).Elem().FieldByName("clock")
	*(*wire.Instant)(unsafe.Pointer(clock.UnsafeAddr())) = at //nolint:gosec // planting a bug takes force
}

// publish hands a step to the network.
func (p *process) publish() bool {
	if p.w.bug.quietRepeats && p.cursor <= p.pretend {
		return false // first catch up with what it pretends to have covered, or the lie would show
	}
	write := p.NextWrite()
	if write == nil {
		return false
	}
	if p.w.bug.quietRepeats && p.cursor > p.pretend {
		write.Attempt.Header.Set(topology.HeaderCommands, fmt.Sprintf("%d-%d", p.pretend+1, p.cursor))
		a := &write.Attempt
		a.Header.Set(topology.HeaderSeal, p.w.log.Seal.Message(topology.EvtStream(0), a.Expected+1, a.Header, a.Payload))
		p.pretend = p.cursor
	}
	if p.w.bug.answerEarly {
		p.answer(write.Replies)
		write.Replies = nil
	}
	f := &flight{write: write}
	p.flights = append(p.flights, f)
	if p.w.bug.pipelined {
		f.assumed = true
		p.Acked(write.Attempt.Expected + 1)
	}
	p.transmit(f)
	return true
}

// transmit publishes a write, perhaps not for the first time.
func (p *process) transmit(f *flight) {
	w := p.w
	f.try++
	f.state = waiting
	try, taking, attempt := f.try, p.taking, f.write.Attempt
	w.Send(p.name+" writes", func() {
		sequence, ok := w.write(attempt)
		w.Send("result to "+p.name, func() {
			if p.taking == taking && f.try == try && f.state == waiting {
				f.state, f.seq = unknown, 0
				if ok {
					f.state, f.seq = acked, sequence
				}
			}
		})
	})
}

// land takes the result of the oldest write in flight a step further.
func (p *process) land() bool {
	if len(p.flights) == 0 {
		return false
	}
	w, f := p.w, p.flights[0]
	expected := f.write.Attempt.Expected
	switch f.state {
	case waiting:
		if w.Rng.IntN(8) != 0 {
			return false
		}
		w.Count("ack not waited for", 1)
		f.state = unknown
	case acked:
		p.landed(f.seq)
	case unknown:
		end, ok := w.bounds(&w.events)
		if !ok {
			return false
		}
		f.last = end.Last
		if f.state = endRead; f.last <= expected {
			p.verdict(f, f.write.Attempt.Judge(f.last, nil))
		}
	case endRead:
		var placed *eventlog.Raw
		if raw, err := w.read(&w.events, expected+1); err == nil {
			placed = &raw
		}
		p.verdict(f, f.write.Attempt.Judge(f.last, placed))
	}
	return true
}

func (p *process) verdict(f *flight, outcome eventlog.Outcome) {
	switch outcome {
	case eventlog.Landed:
		p.w.Count("resolved: landed", 1)
		p.landed(f.write.Attempt.Expected + 1)
	case eventlog.Unchanged:
		p.w.Count("resolved: published again", 1)
		p.transmit(f)
	case eventlog.Lost:
		if !f.assumed {
			p.Abandon()
		}
		p.w.Count("fenced", 1)
		p.w.Note("%s is fenced out", p.Nonce())
		p.leave(idle)
	}
}

// landed lets answers leave.
func (p *process) landed(sequence uint64) {
	f := p.flights[0]
	p.flights = p.flights[1:]
	if !f.assumed {
		p.Acked(sequence)
	}
	p.publish()
	p.answer(f.write.Replies)
}

func (p *process) answer(answers []protocol.Reply) {
	for _, a := range answers {
		p.w.judge.answered(p, a)
		p.w.Send("answer", func() { p.w.crowd.hear(a) })
	}
}

// save writes a snapshot, seldom.
func (p *process) save() bool {
	if !p.Settled() || p.Sequence() == 0 || p.Mark().Position.Sequence == 0 || p.w.Rng.IntN(12) != 0 {
		return false
	}
	frozen, mark := p.Freeze()
	var buf bytes.Buffer
	if _, err := frozen.WriteTo(&buf); err != nil {
		p.w.Violate("broken simulation", "%v", err)
	}
	p.w.Count("snapshot saved", 1)
	p.w.snapshots = append(p.w.snapshots, snapshot{mark, buf.Bytes()})
	return true
}

// purge removes covered commands, never the last covered one.
func (p *process) purge() bool {
	if p.w.Rng.IntN(20) != 0 || p.Covered() <= p.w.commands.First() {
		return false
	}
	p.w.commands.Trim(p.w.commands.First() + uint64(p.w.Rng.Int64N(int64(p.Covered()-p.w.commands.First())+1)))
	p.w.Count("commands purged", 1)
	return true
}
