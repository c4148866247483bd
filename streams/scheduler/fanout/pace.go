package fanout

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/seed-4a2410e3/scrip/streams/settings"
)

const (
	// MaxChunk is the most customers one request to the lane is for: it fires them in some milliseconds, for which claims wait.
	MaxChunk = 25_000
	// ChunksInFlight is how many such requests may be in flight through lane and fan-out at once: the lane decides one while the
	// fan-out publishes another.
	ChunksInFlight = 4

	// leastDuty is the share of time in which the fan-out works at least, so that reminders are not delayed without bound.
	leastDuty = 1. / 16
	// firstDuty is where it starts while commands are being answered, before anything is known.
	firstDuty = 1. / 4
	// gentle is how much the share grows with each good probe: from the least to all of it in about fifty.
	gentle = 1. / 50
	// longestRest bounds one pause.
	longestRest = 50 * time.Millisecond
	// slowdown is how much longer a probe may take than one does while no reminders go out.
	slowdown = 2
	// ackFloor and answerFloor: up to this a probe is never slow. An fsync that meets another takes as long.
	ackFloor    = 4 * time.Millisecond
	answerFloor = 10 * time.Millisecond
	// settleFor is the least time between two halvings, so that the first can show.
	settleFor = 20 * time.Millisecond
	// quietAfter is how long after the last message probes measure a time without reminders.
	quietAfter = 100 * time.Millisecond
	// baselineAge is how old a baseline is when a new probe replaces it wholly.
	baselineAge = 10 * time.Second
)

// Pace throttles the fan-out. It has two bounds: the rate that operators set, and the share of time that claims leave over.
// It does nothing by itself and knows no clock.
//
//	probes (acks, answers) ──> slow? ──> duty, 1 … 1/16 ──> slices: a few messages, all acknowledged, a rest
//
// A claim waits for an acknowledgement on the command stream and for a step of the lane; so does a request of the scheduler.
// Such a request, and the first message of a slice, are therefore probes of what claims wait for. When one takes more than
// twice as long as probes did without a fan-out, the share of time is halved; otherwise it grows a little. While no commands
// are answered the fan-out has all the time.
//
// Owner: the goroutine that runs the scheduler. A crash loses what was measured; the next run starts at firstDuty.
type Pace struct {
	settings *settings.Settings
	busy     func() bool // commands are being answered; nil = never

	duty    float64   // while busy
	eased   time.Time // when it was last made less
	ack     probe
	answer  probe
	last    time.Time // when a message was published last
	working bool      // the last look found commands being answered

	limit *rate.Limiter // messages that the operators' rate allows

	started time.Time // of the slice under way; zero = none is
	slice   int       // messages it may still publish
	rest    time.Time // until when nothing is published
}

// probe is how long something takes while no reminders go out, decayed; 0 = not known.
type probe struct {
	baseline time.Duration
	at       time.Time
}

// NewPace makes a pace with default settings. busy reports whether commands are being answered now; nil = never.
func NewPace(busy func() bool) *Pace {
	p := &Pace{busy: busy, duty: firstDuty}
	p.Configure(settings.Default())
	return p
}

func (p *Pace) Configure(s *settings.Settings) {
	p.settings, p.limit = s, rate.NewLimiter(rate.Inf, 0)
	if n := s.ReminderRate; n > 0 {
		p.limit = rate.NewLimiter(rate.Limit(n), int(float64(n)*longestRest.Seconds())+1)
	}
}

// Hold reports whether reminders may be held back for a person.
func (p *Pace) Hold() bool { return p.settings.Holds() }

func (p *Pace) Batch() int { return max(p.settings.ReminderBatch, 1) }

// Share is the share of time in which the fan-out may work, 1/16 to 1.
func (p *Pace) Share() float64 {
	if p.working {
		return p.duty
	}
	return 1
}

// window is how many messages may be in flight.
func (p *Pace) window() int { return max(int(float64(p.settings.ReminderConcurrency)*p.Share()), 1) }

// Chunk is the most customers that one request should be for: a busy lane is kept for a short time only, and no more fires
// than a moderate rate publishes in a quarter of a second.
func (p *Pace) Chunk() int {
	chunk := max(int(MaxChunk*p.Share()), p.Batch())
	if p.settings.ReminderRate > 0 {
		chunk = min(chunk, max(p.settings.ReminderRate*p.Batch()/ChunksInFlight, p.Batch()))
	}
	return min(chunk, MaxChunk)
}

// Look reads whether commands are being answered. It is called before anything else, each time round.
func (p *Pace) Look() {
	p.working = p.busy != nil && p.busy()
}

// may reports whether a message may be published now, with so many in flight, and if not, when to try again: zero if after
// the last one is acknowledged.
func (p *Pace) may(now time.Time, inFlight int) (ok bool, again time.Time) {
	if now.Before(p.rest) {
		if p.rest.Sub(now) <= longestRest {
			return false, p.rest
		}
		p.rest = time.Time{} // the clock was set back
	}
	share := p.Share()
	if share < 1 && !p.started.IsZero() && p.slice == 0 {
		return false, time.Time{}
	}
	first := share < 1 && p.started.IsZero() // of a slice
	if first && inFlight > 0 {
		return false, time.Time{} // from before the server was busy
	}
	if !p.limit.AllowN(now, 1) {
		missing := (1 - p.limit.TokensAt(now)) / float64(p.limit.Limit())
		return false, now.Add(min(time.Duration(missing*1e9)+1, longestRest))
	}
	if first {
		p.started, p.slice = now, p.window()
	}
	return true, time.Time{}
}

// left records that a message was published.
func (p *Pace) left(now time.Time) {
	p.slice = max(p.slice-1, 0)
	p.last = now
}

// empty records that all messages are acknowledged: a slice is over, and followed by a rest.
func (p *Pace) empty(now time.Time) {
	p.last = now
	if p.started.IsZero() {
		return
	}
	worked := max(now.Sub(p.started), 0)
	p.started, p.slice = time.Time{}, 0
	if share := p.Share(); share < 1 {
		p.rest = now.Add(min(time.Duration(float64(worked)*(1/share-1)), longestRest))
	}
}

// Acked is a probe: how long an acknowledgement took that waited for no other message of ours.
func (p *Pace) Acked(now time.Time, took time.Duration) {
	p.probed(&p.ack, now, took, ackFloor)
}

// Replied is a probe: how long the lane took from a request to its event. Large requests teach no baseline, as they are work
// for the lane; but a claim after one waits as long.
func (p *Pace) Replied(now time.Time, took time.Duration, small bool) {
	if small || !p.quiet(now, took) {
		p.probed(&p.answer, now, took, answerFloor)
	}
}

// quiet reports whether no reminders were published while a probe was in flight that took so long.
func (p *Pace) quiet(now time.Time, took time.Duration) bool {
	return p.last.IsZero() || now.Sub(p.last) > quietAfter+took
}

func (p *Pace) probed(b *probe, now time.Time, took, floor time.Duration) {
	if p.quiet(now, took) {
		b.learn(now, took)
		return
	}
	if !p.working {
		return
	}
	switch {
	case took <= max(slowdown*b.baseline, floor):
		p.duty = min(p.duty+gentle, 1)
	case p.eased.IsZero() || now.Sub(p.eased) >= settleFor || now.Before(p.eased):
		p.duty, p.eased = max(p.duty/2, leastDuty), now
	}
}

// learn moves the baseline towards a probe from a time without reminders, the more the older the baseline is.
func (b *probe) learn(now time.Time, took time.Duration) {
	weight := max(min(now.Sub(b.at).Seconds()/baselineAge.Seconds(), 1), 1./16)
	if b.at.IsZero() || b.baseline == 0 {
		weight = 1
	}
	b.baseline += time.Duration(weight * float64(took-b.baseline))
	b.at = now
}
