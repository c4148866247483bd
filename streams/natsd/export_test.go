package natsd

import (
	"errors"

	"github.com/nats-io/nats-server/v2/server"
)

// SetFree makes the server believe that its disk has that much room. Before Run.
func (s *Server) SetFree(free func(dir string) uint64) { s.free = free }

// BreakStore does what nats-server does when a store cannot write: it logs that.
func (s *Server) BreakStore() { s.StoreFailed(errors.New("no space left on device")) }

// StoreFailed logs what nats-server logs when a store could not write or sync.
func (s *Server) StoreFailed(err error) {
	s.log.Errorf("Filestore [TEST] Critical write error: %v", err)
}

// Broken reports whether the server takes a store for broken.
func (s *Server) Broken() bool { return s.log.broken.Load() }

// Enforce closes connections over the limits, as Run does.
func (s *Server) Enforce() { s.enforce() }

// OfBrokenStore reports whether a format is that of a line about a store that cannot write.
func OfBrokenStore(format string) bool { return storeFailed.MatchString(format) }

// ServerOptions are nats-server's own.
func (o Options) ServerOptions() (*server.Options, error) { return o.withDefaults().server() }
