package projector

import (
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/tables"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/testsignal"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// State is the state of a lane's projection.
type State string

// The states. Only Stopped needs an operator to act.
const (
	Starting  State = "starting"
	Standby   State = "standby"   // another projector is running on this database, see Holder
	Following State = "following" // applies what arrives
	Waiting   State = "waiting"   // something is unavailable; retried until it is available
	Stopped   State = "stopped"   // see Err for what to do
	Ended     State = "ended"     // Run has returned
)

// Works is true of a projector that fills the tables, or is to: Waiting and Stopped are failures of the one that does. In any other
// state it knows nothing about them, and reports nothing.
func (s State) Works() bool { return s == Following || s == Waiting || s == Stopped }

// Progress is the progress of one lane's projection.
type Progress struct {
	Lane  int
	State State
	// Err is why it waits or stopped, otherwise nil.
	Err error
	// Sequence is the last event message in the tables, LogTime its lane time (zero before the first).
	Sequence uint64
	LogTime  time.Time
	// Since is when State was entered.
	Since time.Time
	// Holder is the session that has the projector's lock, while this projector is on standby.
	Holder string
	// Known: Sequence is the tables' checkpoint. This projector has the lock, so no other one moves that, and has loaded
	// it.
	Known bool
	// Behind is how many messages follow in the log, nil = not known: the checkpoint is not known, NATS is unreachable,
	// or the log is not the one that the tables were filled from. Lag is the age of the newest event in the tables, 0
	// when no message follows; while the lane waits or has stopped, it is for how long. 0 where State does not work.
	Behind *uint64
	Lag    time.Duration
	// Current is in how long the tables are current at the rate of the last seconds: 0 = they are, Unknown if they lag and do
	// not catch up.
	Current time.Duration
	// Since this projector started: event lines applied, lines stored as dead letters, foreign messages ignored,
	// transactions.
	Events, Parked, Foreign, Batches uint64
	// LastApplied is when the last batch was committed, zero if none was.
	LastApplied time.Time
}

// progress is written by one lane and read from any goroutine.
type progress struct {
	batches atomic.Uint64
	mu      sync.Mutex
	now     Progress
	reader  *eventlog.Reader // while following
	taken   uint64           // messages taken from it and not applied yet
	end     *uint64          // of the stream, while there is no reader; nil = not known
	pace    pace

	clock     wall.Clock
	connected func() bool // to NATS
	changed   *testsignal.Signal[Progress]
}

func newProgress(lane int, clock wall.Clock, connected func() bool, changed *testsignal.Signal[Progress]) *progress {
	now := Progress{Lane: lane, State: Starting, Since: clock.Now()}
	return &progress{now: now, clock: clock, connected: connected, changed: changed}
}

// state sets the state.
func (p *progress) state(s State, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endReader()
	p.enter(s, err)
}

// standby sets the state, and which session has the lock.
func (p *progress) standby(holder string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endReader()
	p.enter(Standby, nil)
	p.now.Holder = holder
}

func (p *progress) enter(s State, err error) {
	if p.now.State != s {
		p.now.Since = p.clock.Now()
	}
	p.now.State, p.now.Err, p.now.Holder = s, err, ""
	p.changed.Send(p.now)
}

func (p *progress) is(s State) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now.State == s
}

func (p *progress) endReader() {
	if p.reader != nil {
		p.now.Foreign += p.reader.Foreign()
		end := p.now.Sequence + p.taken + p.reader.Lag()
		p.end = &end
		p.reader, p.taken = nil, 0
	}
}

// load records the checkpoint of the tables.
func (p *progress) load(sequence uint64, clock wire.Instant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.Known, p.now.Sequence, p.now.LogTime = true, sequence, time.Time{}
	if clock != 0 {
		p.now.LogTime = clock.Time()
	}
}

// forget records that another projector may move the checkpoint from now on.
func (p *progress) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endReader()
	p.now.Known, p.end = false, nil
}

// unread is true of a lane with a checkpoint and without a reader, which would know where the stream ends.
func (p *progress) unread() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now.Known && p.reader == nil
}

// measured records where the stream of an unread lane ends, nil = not known.
func (p *progress) measured(end *uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end = end
	p.changed.Send(p.now)
}

// follow records the reader, which starts at the checkpoint. enter is false for a stopped lane that checks whether it
// can continue.
func (p *progress) follow(reader *eventlog.Reader, enter bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endReader()
	p.reader = reader
	if enter {
		p.enter(Following, nil)
	}
}

// resume records that a stopped lane continues.
func (p *progress) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enter(Following, nil)
}

// took records how many messages are taken from the reader and not applied yet.
func (p *progress) took(messages int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken = uint64(messages)
	p.changed.Send(p.now)
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
	p.now.LastApplied = p.clock.Now()
	p.changed.Send(p.now)
}

func (p *progress) get() Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now
	now.Current = Unknown
	if p.reader == nil {
		if !now.State.Works() {
			return now
		}
		now.Lag = p.clock.Now().Sub(now.Since)
		if p.end != nil && *p.end >= now.Sequence && !fill.IsLost(now.Err) && p.connected() {
			behind := *p.end - now.Sequence
			now.Behind = &behind
		}
		return now
	}
	now.Foreign += p.reader.Foreign()
	behind := p.taken + p.reader.Lag()
	if behind > 0 && !now.LogTime.IsZero() {
		now.Lag = max(0, p.clock.Now().Sub(now.LogTime))
	}
	if !p.connected() { // the reader waits, and has the number from before
		return now
	}
	now.Behind = &behind
	p.pace.sample(p.clock.Now(), now.Sequence, now.Sequence+behind)
	now.Current = p.pace.left(p.clock.Now(), now.Sequence, now.Sequence+behind)
	return now
}

// Progress returns the progress of each lane. Safe for concurrent use.
func (p *Projector) Progress() []Progress {
	list := make([]Progress, 0, len(p.lanes))
	for _, l := range p.lanes {
		list = append(list, l.progress.get())
	}
	return list
}

// following is the only metric of a lane that a projector on standby has, too: by it one sees which server has the others.
var following = described("following", "1 while this server projects the lane, 0 while it waits, is on standby or has stopped. The other metrics of the lane are those of the server that projects it, or is to.")

// metrics of a lane. A projector on standby has none of them, but for what it counted before. One that does not know
// the checkpoint, as PostgreSQL is unreachable for it, has none about that: another server may be filling the tables.
var metrics = []struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*Progress) float64
}{
	{described("lag_seconds", "Age of the newest event in the read tables while more events follow it in the log, else 0."), prometheus.GaugeValue, known((*Progress).lag)},
	{described("behind_messages", "Event messages in the log that are not in the read tables yet; absent while that is not known, as PostgreSQL or NATS is unreachable."), prometheus.GaugeValue, (*Progress).behind},
	{described("current_seconds", "In how long the read tables are current at the rate of the last seconds; -1 while they lag and do not catch up."), prometheus.GaugeValue, known((*Progress).CurrentIn)},
	{described("position", "Sequence of the last event message in the read tables."), prometheus.GaugeValue, known(func(p *Progress) float64 { return float64(p.Sequence) })},
	{described("stopped", "1 when the lane is not projected until an operator acts."), prometheus.GaugeValue, func(p *Progress) float64 { return p.is(Stopped) }},
	{described("events_total", "Event lines applied to the read tables."), prometheus.CounterValue, func(p *Progress) float64 { return float64(p.Events) }},
	{described("poison_total", "Event lines stored as dead letters because they could not be applied."), prometheus.CounterValue, func(p *Progress) float64 { return float64(p.Parked) }},
	{described("foreign_total", "Messages in the event stream that scrip did not write, ignored."), prometheus.CounterValue, func(p *Progress) float64 { return float64(p.Foreign) }},
	{described("batches_total", "Transactions committed."), prometheus.CounterValue, func(p *Progress) float64 { return float64(p.Batches) }},
}

// overdue is of all lanes, of the projector that fills the tables.
var overdue = prometheus.NewDesc("scrip_projection_segments_overdue", "Tables of coupons that were merged into another one more than five minutes ago, or are to, and are kept by transactions that read coupons; absent while that is not known.", nil, nil)

func described(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("scrip_projection_"+name, help, []string{"lane"}, nil)
}

// CurrentIn is Current in seconds, -1 = Unknown.
func (p *Progress) CurrentIn() float64 {
	if p.Current == Unknown {
		return -1
	}
	return p.Current.Seconds()
}

// known makes a value NaN while the checkpoint is not known.
func known(value func(*Progress) float64) func(*Progress) float64 {
	return func(p *Progress) float64 {
		if !p.Known {
			return math.NaN()
		}
		return value(p)
	}
}

// lag is Lag in seconds, NaN = not known: a lane that follows the log has none while NATS is unreachable.
func (p *Progress) lag() float64 {
	if p.State == Following && p.Behind == nil {
		return math.NaN()
	}
	return p.Lag.Seconds()
}

// behind is Behind, NaN = not known.
func (p *Progress) behind() float64 {
	if p.Behind == nil {
		return math.NaN()
	}
	return float64(*p.Behind)
}

// is returns 1 in a state, else 0.
func (p *Progress) is(s State) float64 {
	if p.State == s {
		return 1
	}
	return 0
}

// Describe implements prometheus.Collector.
func (p *Projector) Describe(ch chan<- *prometheus.Desc) {
	ch <- following
	ch <- overdue
	for _, m := range metrics {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (p *Projector) Collect(ch chan<- prometheus.Metric) {
	if set := p.segments.Load(); set != nil {
		if n, known := set.Overdue(); known {
			ch <- prometheus.MustNewConstMetric(overdue, prometheus.GaugeValue, float64(n))
		}
	}
	for _, now := range p.Progress() {
		lane := strconv.Itoa(now.Lane)
		ch <- prometheus.MustNewConstMetric(following, prometheus.GaugeValue, now.is(Following), lane)
		for _, m := range metrics {
			if v := m.value(&now); now.State.Works() && !math.IsNaN(v) || m.kind == prometheus.CounterValue && v > 0 {
				ch <- prometheus.MustNewConstMetric(m.desc, m.kind, v, lane)
			}
		}
	}
}
