package scheduler

import (
	"time"

	"github.com/seed-4a2410e3/scrip/streams/config"
)

const (
	// leastDuty is the share of time in which the fan-out works at least: people wait for reminders, too.
	leastDuty = 1. / 16
	// firstDuty is where it begins while people are being answered, before anything is known.
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
	// settleFor is how long a change of pace is given to show before the next halving.
	settleFor = 20 * time.Millisecond
	// quietAfter is how long after the last message probes tell of a time without reminders.
	quietAfter = 100 * time.Millisecond
	// baselineAge is how old a baseline is when a new probe replaces it wholly.
	baselineAge = 10 * time.Second
)

// pace says when the fan-out may publish. It knows two bounds: the rate that operators set, and the share of time that
// people's claims leave over. It does nothing by itself and knows no clock.
//
//	probes (acks, answers) ──> slow? ──> duty, 1 … 1/16 ──> slices: a few messages, all landed, a rest
//
// A claim waits for an acknowledgement on the command stream and for a step of the lane; so does an ask. An ask, and the
// first message of a slice, are therefore probes of what claims wait for. Where one takes more than twice as long as
// they did without a fan-out, the share of time is halved; otherwise it grows a little. While nobody is answered, all
// time is the fan-out's.
type pace struct {
	settings *config.Settings
	busy     func() bool // people are being answered; nil = never

	duty    float64   // while busy
	eased   time.Time // when it was last made less
	ack     probe
	answer  probe
	last    time.Time // when a message left last
	working bool      // the last look found people being answered

	tokens float64 // messages that the rate allows now
	filled time.Time

	began time.Time // of the slice under way; zero = none is
	slice int       // messages it may still publish
	rest  time.Time // until when nothing is published
}

// probe is how long something takes while no reminders go out, decayed; 0 = not known.
type probe struct {
	baseline time.Duration
	at       time.Time
}

func newPace(busy func() bool) *pace {
	return &pace{settings: config.Default(), busy: busy, duty: firstDuty}
}

// configure puts other settings in force.
func (p *pace) configure(s *config.Settings) { p.settings = s }

// batch is the most customers of a message.
func (p *pace) batch() int { return max(p.settings.ReminderBatch, 1) }

// share is the share of time the fan-out may work.
func (p *pace) share() float64 {
	if p.working {
		return p.duty
	}
	return 1
}

// window is how many messages may be on their way.
func (p *pace) window() int { return max(int(float64(p.settings.ReminderConcurrency)*p.share()), 1) }

// chunk is the most customers that one ask should be for: a lane that people wait for is kept for a short time only, and
// no more fires than a moderate rate publishes in a quarter of a second.
func (p *pace) chunk() int {
	chunk := max(int(maxChunk*p.share()), p.batch())
	if p.settings.ReminderRate > 0 {
		chunk = min(chunk, max(p.settings.ReminderRate*p.batch()/chunksInFlight, p.batch()))
	}
	return min(chunk, maxChunk)
}

// look finds out whether people are being answered. It is called before anything else, each time round.
func (p *pace) look() {
	p.working = p.busy != nil && p.busy()
}

// may says whether a message may be published now, with so many on their way, and if not, when to ask again: zero if it
// is when the last one has landed.
func (p *pace) may(now time.Time, inFlight int) (ok bool, again time.Time) {
	if now.Before(p.rest) {
		if p.rest.Sub(now) <= longestRest {
			return false, p.rest
		}
		p.rest = time.Time{} // the clock was set back
	}
	share := p.share()
	if share < 1 && !p.began.IsZero() && p.slice == 0 {
		return false, time.Time{}
	}
	if rate := float64(p.settings.ReminderRate); rate > 0 {
		burst := max(rate*longestRest.Seconds(), 1)
		if p.filled.IsZero() {
			p.tokens = burst
		} else if passed := now.Sub(p.filled); passed > 0 {
			p.tokens = min(p.tokens+rate*passed.Seconds(), burst)
		}
		p.filled = now
		if p.tokens < 1 {
			return false, now.Add(min(time.Duration((1-p.tokens)/rate*1e9)+1, longestRest))
		}
	}
	if share < 1 && p.began.IsZero() {
		if inFlight > 0 {
			return false, time.Time{} // from before people came
		}
		p.began, p.slice = now, p.window()
	}
	return true, time.Time{}
}

// left notes that a message was published.
func (p *pace) left(now time.Time) {
	p.tokens = max(p.tokens-1, 0)
	p.slice = max(p.slice-1, 0)
	p.last = now
}

// empty notes that all messages have landed: a slice is over, and followed by a rest.
func (p *pace) empty(now time.Time) {
	p.last = now
	if p.began.IsZero() {
		return
	}
	worked := max(now.Sub(p.began), 0)
	p.began, p.slice = time.Time{}, 0
	if share := p.share(); share < 1 {
		p.rest = now.Add(min(time.Duration(float64(worked)*(1/share-1)), longestRest))
	}
}

// acked is a probe: how long an acknowledgement took that waited for nothing of ours.
func (p *pace) acked(now time.Time, took time.Duration) {
	p.probed(&p.ack, now, took, ackFloor)
}

// replied is a probe: how long the lane took from an ask to its event. Of asks that are work to the lane, nothing is
// learned about what it takes without; a claim behind one waits as long.
func (p *pace) replied(now time.Time, took time.Duration, small bool) {
	if small || !p.quiet(now, took) {
		p.probed(&p.answer, now, took, answerFloor)
	}
}

// quiet says that no reminders were going out while a probe was under way that took so long.
func (p *pace) quiet(now time.Time, took time.Duration) bool {
	return p.last.IsZero() || now.Sub(p.last) > quietAfter+took
}

func (p *pace) probed(b *probe, now time.Time, took, floor time.Duration) {
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

// learn takes a probe from a time without reminders into the baseline, the more the older that is.
func (b *probe) learn(now time.Time, took time.Duration) {
	weight := max(min(now.Sub(b.at).Seconds()/baselineAge.Seconds(), 1), 1./16)
	if b.at.IsZero() || b.baseline == 0 {
		weight = 1
	}
	b.baseline += time.Duration(weight * float64(took-b.baseline))
	b.at = now
}
