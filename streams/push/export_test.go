package push

import "time"

// AckFor bounds how long an acknowledgement is retried: one for a consumer that is gone, or forgot the delivery, is never answered.
func (p *Pusher) AckFor(d time.Duration) { p.ackFor = d }
