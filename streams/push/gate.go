package push

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/priority"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

const (
	// tripAfter is how many calls must fail in a row, and tripPauses for how many first pauses, before the breaker opens. The
	// gateway may refuse one campaign only: within that time a process comes to the messages of others.
	tripAfter  = 8
	tripPauses = 5
)

// gatewayState is what the end of a call shows about the gateway.
type gatewayState uint8

const (
	untried  gatewayState = iota // there was no call, or it was cut off
	answered                     // the gateway delivered, or refused: it works
	failed                       // an error that may be about the gateway or about the message
	away                         // the gateway does not work, or answered with Retry-After
)

// gate grants calls: as many at once as the gateway bears, shared by weight among the classes, and none while it is away.
//
//	closed ── 8 calls failed in a row, for 5 pauses; or one found the gateway away ──> open
//	open   ── one probe after a pause, which doubles; or at once of a campaign that has not failed ── answered ──> closed
//
// It belongs to one process. A crash loses it: the next process finds out for itself, with as many calls as it has workers.
type gate struct {
	clock       wall.Clock
	log         *slog.Logger
	first, most time.Duration // pauses between probes
	done        chan struct{}

	mu      sync.Mutex // guards the fields below
	pace    pace
	calling int // calls in progress
	waiting [classes][]*turn
	shares  priority.Shares
	answers uint64    // calls that were answered
	run     int       // calls that failed since
	since   time.Time // the first of them ended
	open    bool
	probing bool
	pause   time.Duration
	next    time.Time // probe
	fresh   time.Time // probe of a campaign that has not failed; zero = none before next
	held    time.Time // Retry-After of the gateway ends then
	armed   uint64
}

// turn is one call, waited for or granted.
type turn struct {
	class   class
	fresh   bool // of a campaign that has not failed lately
	granted chan struct{}
	began   time.Time // it was granted
	probe   bool
	// customers of the call, which its owner sets; 0 = no call was made.
	customers int
}

func newGate(o *Options) *gate {
	return &gate{
		clock: o.Clock, log: o.Logger, first: o.Pause, most: max(pauseMost, o.Pause), done: make(chan struct{}),
		pace: pace{most: float64(o.Workers), limit: float64(o.Workers)}, shares: priority.Shares{Part: 1},
	}
}

// enter waits for a call. nil = ctx ended first.
func (g *gate) enter(ctx context.Context, c class, fresh bool) *turn {
	t := &turn{class: c, fresh: fresh, granted: make(chan struct{})}
	g.mu.Lock()
	g.waiting[c] = append(g.waiting[c], t)
	g.grant()
	g.mu.Unlock()
	select {
	case <-t.granted:
		return t
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting[c], t)
	if i < 0 { // it was granted just now
		g.back(t)
		return nil
	}
	g.waiting[c] = slices.Delete(g.waiting[c], i, i+1)
	return nil
}

// try is enter that does not wait, except for the gateway: while the breaker is open the message stays where it is. ok is
// false if every call is taken; turn is nil as for enter.
func (g *gate) try(ctx context.Context, c class, fresh bool) (t *turn, ok bool) {
	g.mu.Lock()
	if !g.open && (!g.free() || len(g.waiting[c]) > 0) {
		g.mu.Unlock()
		return nil, false
	}
	g.mu.Unlock()
	return g.enter(ctx, c, fresh), true
}

// leave ends a call, with what it shows about the gateway. retryAfter is the gateway's, 0 = none.
func (g *gate) leave(t *turn, f gatewayState, retryAfter time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	g.pace.ended(f, t.began, now, t.customers, !g.free())
	switch f {
	case untried:
	case answered:
		g.answers++
		g.run = 0
		if g.open && !now.Before(g.held) {
			g.open, g.pause = false, 0
			g.log.Info("the gateway works again")
		}
	case failed, away:
		g.failure(t, f, retryAfter, now)
	}
	g.back(t)
}

func (g *gate) failure(t *turn, f gatewayState, retryAfter time.Duration, now time.Time) {
	if g.run++; g.run == 1 {
		g.since = now
	}
	switch {
	case !g.open && (f == away || g.run >= tripAfter && now.Sub(g.since) >= tripPauses*g.first):
		g.open, g.pause = true, g.first
		g.next, g.fresh = now.Add(spreadOut(g.pause)), time.Time{}
		if f == failed {
			g.fresh = now.Add(g.first)
		}
		g.log.Warn("the gateway does not work: no more calls but one probe at a time", "failed", g.run, "next", g.next)
	case g.open && t.probe:
		g.pause = min(2*g.pause, g.most)
		g.next = now.Add(spreadOut(g.pause))
		if f == failed {
			g.fresh = now.Add(g.first)
		} else {
			g.fresh = time.Time{}
		}
	}
	if retryAfter > 0 {
		if until := now.Add(retryAfter); until.After(g.held) {
			g.held = until
		}
	}
	if g.next.Before(g.held) {
		g.next, g.fresh = g.held, time.Time{}
	}
}

// back returns a turn. The caller holds mu.
func (g *gate) back(t *turn) {
	g.calling--
	if t.probe {
		g.probing = false
	}
	g.grant()
}

// free reports whether another call may be made. The caller holds mu.
func (g *gate) free() bool { return g.calling < int(g.pace.limit) }

// grant grants what may be granted now. The caller holds mu.
func (g *gate) grant() {
	for g.free() && !(g.open && g.probing) {
		t := g.choose()
		if t == nil {
			return
		}
		i := slices.Index(g.waiting[t.class], t)
		g.waiting[t.class] = slices.Delete(g.waiting[t.class], i, i+1)
		g.calling++
		t.began, t.probe = g.clock.Now(), g.open
		g.probing = g.open
		close(t.granted)
	}
}

// choose returns the turn that is next, nil if none may be granted yet.
func (g *gate) choose() *turn {
	if !g.open {
		return g.weigh(false)
	}
	now := g.clock.Now()
	if now.Before(g.next) {
		if !g.fresh.IsZero() && !now.Before(g.fresh) {
			if t := g.weigh(true); t != nil {
				return t
			}
		}
		g.wake(now)
		return nil
	}
	if t := g.weigh(true); t != nil {
		return t
	}
	return g.weigh(false)
}

// weigh chooses by weight among the classes in which a turn waits; with fresh only among those turns.
func (g *gate) weigh(fresh bool) *turn {
	first := func(c class) *turn {
		for _, t := range g.waiting[c] {
			if t.fresh || !fresh {
				return t
			}
		}
		return nil
	}
	c, ok := g.shares.Next(func(c class) bool { return first(c) != nil })
	if !ok {
		return nil
	}
	g.shares.Pay(c, 1)
	return first(c)
}

// wake grants again when the next probe may be made. The caller holds mu.
func (g *gate) wake(now time.Time) {
	at := g.next
	if g.fresh.After(now) && g.fresh.Before(at) {
		at = g.fresh
	}
	g.armed++
	n, due := g.armed, g.clock.After(at.Sub(now))
	go func() {
		select {
		case <-due:
		case <-g.done:
			return
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		if n == g.armed {
			g.grant()
		}
	}()
}

func (g *gate) answered() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.answers
}

// state is for Stats: calls in progress, how many may be, whether the breaker is open, and when the next probe is made.
func (g *gate) state() (calling, limit int, open bool, next time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open {
		next = g.next
	}
	return g.calling, int(g.pace.limit), g.open, next
}

func (g *gate) end() { close(g.done) }

const (
	// suspectAfter is how many calls for a campaign must fail in a row before its messages wait after those of others.
	suspectAfter = 8
	// suspectsMost bounds the campaigns that are remembered.
	suspectsMost = 10_000
)

// suspects counts, per campaign, the calls that failed since the last one that delivered. A campaign that the gateway refuses
// is set aside by it and delays no other one. It belongs to one process, and a crash loses it.
type suspects struct {
	mu     sync.Mutex
	failed map[string]int
}

// count counts the result of a call for one campaign.
func (s *suspects) count(campaign string, delivered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case delivered:
		delete(s.failed, campaign)
	case len(s.failed) >= suspectsMost && s.failed[campaign] == 0:
		clear(s.failed) // all start again
		fallthrough
	default:
		if s.failed == nil {
			s.failed = map[string]int{}
		}
		s.failed[campaign]++
	}
}

// sort divides items: those to be tried now, and those of campaigns that only fail. fresh reports whether there is one of a
// campaign that has not failed at all.
func (s *suspects) sort(all []item) (now, later []item, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.failed) == 0 {
		return all, nil, true
	}
	for i := range all {
		n := s.failed[all[i].Campaign]
		fresh = fresh || n == 0
		if n >= suspectAfter {
			later = append(later, all[i])
		} else {
			now = append(now, all[i])
		}
	}
	return now, later, fresh
}
