package projtest

import (
	"time"

	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// Hurried is the machine's clock, but waits take a fiftieth of their time: for tests of what goes on after a pause.
var Hurried wall.Clock = hurried{}

type hurried struct{}

func (hurried) Now() time.Time                         { return time.Now() }
func (hurried) After(d time.Duration) <-chan time.Time { return time.After(d / 50) }
