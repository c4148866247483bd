//go:build !linux

package wall

import "time"

// steady returns how long the process has run. If it stops while the machine is suspended, a resume looks as if the clock had
// been set ahead.
func steady() time.Duration { return time.Since(started) }

var started = time.Now()
