package projector

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/tables"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// State is what a lane's projection is doing.
type State string

// The states. Only Stopped needs somebody to act.
const (
	Starting  State = "starting"
	Standby   State = "standby"   // another projector works on this database
	Following State = "following" // applies what arrives
	Waiting   State = "waiting"   // something is away; tried again until it is back
	Stopped   State = "stopped"   // see Err for what to do
	Ended     State = "ended"     // Run has returned
)

// Progress is how far one lane's projection is.
type Progress struct {
	Lane  int
	State State
	// Err is why it waits or stopped, nil else.
	Err error
	// Sequence is the last event message in the tables, LogTime the log's clock at it (zero before the first).
	Sequence uint64
	LogTime  time.Time
	// Since is when State was entered.
	Since time.Time
	// Behind is how many messages follow in the log, as far as known. Lag is how old the newest event in the tables is,
	// 0 when nothing follows; while the lane does not follow the log, which may go on meanwhile, it is the time since.
	Behind uint64
	Lag    time.Duration
	// Since this projector began: event lines applied, lines parked, foreign messages passed over, transactions.
	Events, Parked, Foreign, Batches uint64
	// LastApplied is when the last batch was committed, zero if none was.
	LastApplied time.Time
}

// progress is written by a lane and read by anybody.
type progress struct {
	batches atomic.Uint64
	mu      sync.Mutex
	now     Progress
	reader  *eventlog.Reader // while following
	taken   uint64           // messages taken from it and not applied yet
	foreign uint64           // of readers before
}

func newProgress(lane int) *progress {
	return &progress{now: Progress{Lane: lane, State: Starting, Since: time.Now()}}
}

// state reports whether it changed.
func (p *progress) state(s State, err error) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endReader()
	return p.enter(s, err)
}

func (p *progress) enter(s State, err error) (changed bool) {
	changed = p.now.State != s
	p.now.State, p.now.Err = s, err
	if changed {
		p.now.Since = time.Now()
	}
	return changed
}

func (p *progress) endReader() {
	if p.reader != nil {
		p.foreign = p.now.Foreign
		p.reader, p.taken = nil, 0
	}
}

// follow notes where a reader begins. enter is false for a lane that has stopped and looks whether it can go on.
func (p *progress) follow(sequence uint64, clock wire.Instant, reader *eventlog.Reader, enter bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endReader()
	p.reader = reader
	if enter {
		p.enter(Following, nil)
	}
	p.now.Sequence = sequence
	p.now.LogTime = time.Time{}
	if clock != 0 {
		p.now.LogTime = clock.Time()
	}
}

// resume notes that a lane that had stopped goes on.
func (p *progress) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enter(Following, nil)
}

// took notes what was taken from the reader, and what that passed over: it belongs to the lane, so only the lane may
// ask it.
func (p *progress) took(reader *eventlog.Reader, messages int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken = uint64(messages)
	p.now.Foreign = p.foreign + reader.Foreign()
}

func (p *progress) applied(b *tables.Batch, sequence uint64, messages, parked int) {
	p.batches.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken -= min(p.taken, uint64(messages))
	p.now.Sequence, p.now.LogTime = sequence, b.To.Time()
	p.now.Events += uint64(len(b.Lines))
	p.now.Parked += uint64(parked)
	p.now.Batches++
	p.now.LastApplied = time.Now()
}

func (p *progress) get() Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now
	switch {
	case p.reader == nil:
		now.Lag = time.Since(now.Since)
	case p.taken+p.reader.Behind() > 0:
		now.Behind = p.taken + p.reader.Behind()
		if !now.LogTime.IsZero() {
			now.Lag = max(0, time.Since(now.LogTime))
		}
	}
	return now
}

// Progress says how far each lane is. Any goroutine may ask.
func (p *Projector) Progress() []Progress {
	list := make([]Progress, 0, len(p.lanes))
	for _, l := range p.lanes {
		list = append(list, l.progress.get())
	}
	return list
}
