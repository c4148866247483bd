// Package natsd is the NATS server inside scrip: JetStream on a directory, and the subject mapping that sends a
// campaign's commands to its lane. No other package outside tests links nats-server.
//
//	producer ── scrip.cmd.summer ──> mapping on the server ── scrip.lane.2.cmd.summer ──> SCRIP_CMD_2
//
// Owner: the process that called Start. It alone may use the directory: a lock ensures that, and a marker file records
// whether the store belongs to a standalone server or to a cluster node. Started in the other mode, nats-server deletes
// every stream half a minute later as "orphaned"; Start refuses instead.
//
// What a crash does: with Sync "always" everything acknowledged is on disk. The mapping is not stored by NATS; the
// number of lanes is in the marker, so that the mapping exists before the first client can connect.
//
// A crash while nats-server writes the description of a new or changed stream leaves one of two files; nats-server would
// ignore the stream. Start completes the description first.
//
// A failed fsync (EIO) ends Run, and with it the process. Linux marks the pages that it could not write as clean: they can be
// read until memory is needed elsewhere, and are never written again. A restart at once reads them, too, so an event that a
// lane then takes for stored may be missing after a power cut. Only a reboot, or a remount, shows what is on the disk.
//
// A full disk, and a store that cannot write, which shows in a line of nats-server's log alone, make Run shut JetStream down.
// Once there is space it starts the whole nats-server again, and clients reconnect.
//
// Clients that have not logged in, and each key, have limits (limits.go). Run closes what is over those that nats-server lacks.
package natsd
