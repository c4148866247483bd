package lane

import (
	"context"
	"time"
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
