package wire

import (
	"strings"
	"sync"
	"time"
)

// withheldReasons are why reminders are not delivered: they had to wait until they were of no use.
var withheldReasons = []string{WithheldQuiet, WithheldCap}

// Reasons of reminders that are withheld.
const (
	WithheldQuiet = "quiet" // for the end of the customer's quiet hours
	WithheldCap   = "cap"   // for a day with room for another message
)

// zones has the zones that were named, of which there are some hundred.
var zones sync.Map // *time.Location by name

// Zone returns a time zone of the IANA database by its name. The database is the machine's, or else the one in the program.
func Zone(name string) (zone *time.Location, ok bool) {
	if z, known := zones.Load(name); known {
		return z.(*time.Location), true
	}
	if name == "" || name == "Local" || len(name) > MaxZone {
		return nil, false
	}
	name = strings.Clone(name) // it may be a view of a line
	zone, err := time.LoadLocation(name)
	if err == nil {
		zones.Store(name, zone)
	}
	return zone, err == nil
}

// ValidZone reports whether the name is one of Zone's.
func ValidZone(name string) bool {
	_, ok := Zone(name)
	return ok
}
