// Package doctor examines a deployment: the machine, NATS and PostgreSQL, before a server starts or while it serves.
//
//	Options ── Run ──> checks (a table) ──> findings: ok, warn or fail, what was found, and how to mend it
//
// It changes nothing. It writes one file beside the data, to time an fsync, and removes it; on PostgreSQL it makes a schema in
// a transaction that it rolls back.
//
// Owner: none. A crash may leave the file .scrip-doctor-* in the data directory; it may be removed.
package doctor
