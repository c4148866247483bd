// Package natsx is what servers, the SDK and the tools share about a NATS connection.
//
//	machine stopped or cut off, no FIN ── pings unanswered ──> the connection is closed, the next node is tried   (Options, Mover)
//	JetStream request ── the stream's leader answers, or it is sent again ──> one answer                          (Request, Retry)
//	request with a reply subject ── an inbox ──> answered;  ── anything else ──> dropped and counted              (MayReply)
//
// The defaults of nats.go notice a silent machine after six minutes. The other end of the same connection is the server's: see
// streams/natsd for the embedded one and docker/nats/cluster.conf.
//
// NATS checks the subjects that a client publishes to, but not the reply subjects in its messages. An answer is published with
// the server's own permissions, which include the log and the JetStream API. Every place that publishes to a subject named by
// a client therefore checks it here first. The answers of NATS itself (PubAcks and JetStream API responses) are not covered:
// the NATS server publishes them to any subject that the request names. The status of a pull has no body, so it deletes a
// stream if it is sent to that API. Only accounts prevent that; see streams/DESIGN.md.
//
// The package has no state; a crash has no effect.
package natsx
