//go:build !linux

package wall

import "time"

// steady is how long the process has run. Where it stands still while the machine is suspended, waking up looks as if the
// clock had been set ahead.
func steady() time.Duration { return time.Since(began) }

var began = time.Now()
