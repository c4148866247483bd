package push

import (
	"fmt"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// class is a queue of messages that wait for a call.
type class uint8

const (
	high class = iota
	normal
	low
	// again is for messages that failed before, and for those of campaigns that only fail: they delay no others.
	again
	classes
)

var (
	classNames = [classes]string{"high", "normal", "low", "again"}
	// weights are the shares of calls while messages of several classes wait; those of priorities are the scheduler's.
	weights = [classes]int{8, 3, 1, 1}
)

func (c class) String() string { return classNames[c] }

// classOf returns the class of a message by its priority header; without one it is normal.
func classOf(priority string) class {
	switch priority {
	case wire.PriorityHigh:
		return high
	case wire.PriorityLow:
		return low
	}
	return normal
}

func parseClass(name string) (class, error) {
	for c, n := range classNames {
		if n == name {
			return class(c), nil
		}
	}
	return 0, fmt.Errorf("%q is no class of waiting messages", name)
}
