package lane

import (
	"context"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/lane/protocol"
)

// maxAhead is how far a command's timestamp may be ahead of the machine's clock before the lane waits instead of expiring
// coupons too early. It is read at each use, so that a waiting lane continues as soon as an operator raises it.
func (o *owner) maxAhead() time.Duration {
	settings, _ := o.opt.Config.Current()
	return settings.ClockTolerance
}

// suspiciousGap is the age of the last event beyond which a takeover reports it. A process that starts cannot distinguish
// a lane that was idle from a machine clock that is wrong; an operator can.
const suspiciousGap = time.Hour

// reportGap compares the time of the lane's last event with the machine's clock.
func (o *owner) reportGap(ctx context.Context) {
	last := o.term.State().Clock()
	if last == 0 {
		return
	}
	gap := o.opt.Clock.Now().Sub(last.Time())
	o.opt.Metrics.gap.WithLabelValues(o.lane.label).Set(gap.Seconds())
	switch {
	case gap > suspiciousGap:
		o.opt.Logger.WarnContext(ctx, "the lane's last event is long ago; if the lane was not idle for so long, the clock of this machine or of NATS is ahead, and everything due until then expires now", "last", last.Time(), "gap", gap.Round(time.Second))
	case gap < -o.maxAhead():
		o.opt.Logger.ErrorContext(ctx, "the lane's last event is in the future; lane time does not advance until the clocks have reached it. Check the clocks of this machine and of the NATS servers", "last", last.Time(), "ahead", -gap.Round(time.Second))
	}
}

const (
	// heldPoll is how often the clock is checked while the first message is held back: the clock may be corrected, and
	// operators may change the tolerance.
	heldPoll = 250 * time.Millisecond
	// heldAlarm is the interval of log messages while a message is held back.
	heldAlarm = 10 * time.Second
)

// heldBack is the state of a first undecided message that is held back, with all messages after it. Steps decided before it
// are written and answered, queries too; only lane time does not advance.
type heldBack struct {
	reason string // empty: nothing is held back
	logged time.Time
	until  <-chan time.Time // next check
}

// timer is ready at the next check; nil while nothing is held back.
func (h *heldBack) timer() <-chan time.Time {
	if h.reason == "" {
		return nil
	}
	return h.until
}

// early reports whether a command is stamped in the future, and holds the lane back while it is.
func (o *owner) early(ctx context.Context, c *protocol.Command) bool {
	now := o.opt.Clock.Now()
	wait := c.Early(now, o.maxAhead())
	if wait <= 0 {
		o.resume(ctx)
		return false
	}
	ahead := c.Stamped.Sub(now).Round(time.Millisecond)
	o.holdBack(ctx, "a command is stamped "+ahead.String()+" in the future; check the clocks of this machine and of the NATS servers", wait)
	return true
}

// holdBack holds the lane back. It logs the reason at first and every ten seconds, and schedules the next check after
// wait or sooner.
func (o *owner) holdBack(ctx context.Context, reason string, wait time.Duration) {
	h := &o.held
	h.until = o.opt.Clock.After(min(wait, heldPoll))
	if h.reason == "" {
		o.opt.Metrics.waiting.WithLabelValues(o.lane.label).Set(1)
	}
	fresh := h.reason == ""
	h.reason = reason
	if now := o.opt.Clock.Now(); fresh || now.Sub(h.logged) >= heldAlarm {
		h.logged = now
		o.opt.Logger.ErrorContext(ctx, "the lane waits: "+reason, "lag", o.feed.Lag())
		o.report(StateOwner)
	}
}

// resume ends the wait, if there is one.
func (o *owner) resume(ctx context.Context) {
	if o.held.reason == "" {
		return
	}
	o.held.reason = ""
	o.opt.Metrics.waiting.WithLabelValues(o.lane.label).Set(0)
	o.opt.Logger.InfoContext(ctx, "the lane continues")
	o.report(StateOwner)
}
