// Package natsx is what servers, the SDK and the tools share about a NATS connection.
//
//	machine stopped or cut off, no FIN ── pings unanswered ──> the connection is closed, the next node is tried   (Options, Mover)
//	JetStream request ── the stream's leader answers, or it is sent again ──> one answer                          (Request, Retry)
//
// The defaults of nats.go notice a silent machine after six minutes. The other end of the same connection is the server's: see
// streams/natsd for the embedded one and docker/nats/cluster.conf.
//
// The package has no state; a crash has no effect.
package natsx
