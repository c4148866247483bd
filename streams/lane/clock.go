package lane

import (
	"context"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/lane/protocol"
)

// maxAhead is how far a command's timestamp may lie ahead of our own clock before the lane waits rather than expire the
// future. It is read whenever it is needed, so that a lane that waits goes on as soon as operators raise it.
func (o *owner) maxAhead() time.Duration {
	settings, _ := o.opt.Config.Current()
	return settings.ClockTolerance
}

// suspiciousGap is how far back the last event of a lane that is taken may lie before that is reported. A process that
// starts cannot know whether the lane was idle for so long or the machine's clock is wrong; people can.
const suspiciousGap = time.Hour

// reportGap compares the time of the lane's last event with the machine's clock.
func (o *owner) reportGap(ctx context.Context) {
	last := o.State().Clock()
	if last == 0 {
		return
	}
	gap := o.opt.Now().Sub(last.Time())
	o.opt.Metrics.gap.WithLabelValues(o.lane.label).Set(gap.Seconds())
	switch {
	case gap > suspiciousGap:
		o.opt.Logger.WarnContext(ctx, "the lane's last event lies far back; unless nothing was asked of it for so long, the clock of this machine or of NATS is ahead, and what falls due until then expires now", "last", last.Time(), "gap", gap.Round(time.Second))
	case gap < -o.maxAhead():
		o.opt.Logger.ErrorContext(ctx, "the lane's last event lies in the future; its time stands still until the clocks have come there. Check the clocks of this machine and of the NATS servers", "last", last.Time(), "ahead", -gap.Round(time.Second))
	}
}

const (
	// holdPoll is how often the clock is looked at again while the first message is held: clocks are set, and operators
	// change the tolerance.
	holdPoll = 250 * time.Millisecond
	// holdAlarm is how often a hold that goes on is logged.
	holdAlarm = 10 * time.Second
)

// heldBack is the first message not decided yet being held back, with all behind it. Steps decided before it are written and
// answered, queries too; only time does not go on.
type heldBack struct {
	reason string // empty: nothing is held
	logged time.Time
	until  *time.Timer // when to look again
}

// timer is ready when to look again; nil while nothing is held.
func (h *heldBack) timer() <-chan time.Time {
	if h.reason == "" {
		return nil
	}
	return h.until.C
}

// early says whether a command comes from the future, and holds the lane for as long as it does.
func (o *owner) early(ctx context.Context, c *protocol.Command) bool {
	now := o.opt.Now()
	wait := c.Early(now, o.maxAhead())
	if wait <= 0 {
		o.release(ctx)
		return false
	}
	ahead := c.Stamped.Sub(now).Round(time.Millisecond)
	o.keep(ctx, "a command is stamped "+ahead.String()+" in the future; check the clocks of this machine and of the NATS servers", wait)
	return true
}

// keep holds the lane, for a reason that people are alarmed with when it begins and every ten seconds, and looks again
// after wait or sooner.
func (o *owner) keep(ctx context.Context, reason string, wait time.Duration) {
	h := &o.hold
	if h.reason == "" {
		h.until = time.NewTimer(min(wait, holdPoll))
		o.opt.Metrics.waiting.WithLabelValues(o.lane.label).Set(1)
	} else {
		h.until.Reset(min(wait, holdPoll))
	}
	fresh := h.reason == ""
	h.reason = reason
	if fresh || time.Since(h.logged) >= holdAlarm {
		h.logged = time.Now()
		o.opt.Logger.ErrorContext(ctx, "the lane waits: "+reason, "commands_behind", o.feed.Behind())
		o.report(StateOwner)
	}
}

// release ends the hold, if there is one.
func (o *owner) release(ctx context.Context) {
	if o.hold.reason == "" {
		return
	}
	o.hold.until.Stop()
	o.hold.reason = ""
	o.opt.Metrics.waiting.WithLabelValues(o.lane.label).Set(0)
	o.opt.Logger.InfoContext(ctx, "the lane does not wait any more")
	o.report(StateOwner)
}
