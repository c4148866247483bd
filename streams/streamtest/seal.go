package streamtest

import (
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Sealed adds a value in the form of a seal to the headers of an event or reminder message, and returns them: readers
// without a key accept the message, those with one do not.
func Sealed(h nats.Header) nats.Header {
	h.Set(topology.HeaderSeal, strings.Repeat("A", 43))
	return h
}
