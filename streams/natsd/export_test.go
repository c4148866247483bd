package natsd

import "github.com/nats-io/nats-server/v2/server"

// SetFree makes the server believe that its disk has that much room. Before Run.
func (s *Server) SetFree(free func(dir string) uint64) { s.free = free }

// BreakStore does what nats-server does when a store cannot write: it logs that.
func (s *Server) BreakStore() {
	s.log.Errorf("Filestore [%s] Critical write error: %v", "TEST", "no space left on device")
}

// ServerOptions are nats-server's own.
func (o Options) ServerOptions() (*server.Options, error) { return o.withDefaults().server() }

// StoreFailed logs what nats-server logs when a store could not write or sync.
func StoreFailed(s *Server, err error) { s.log.Errorf("Critical write error: %v", err) }
