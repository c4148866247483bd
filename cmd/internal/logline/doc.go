// Package logline writes the log of a process that serves: all its lines, by one writer.
//
//	slog of scrip, nats-server's lines ──┐                     ┌─ queue, 1 MiB ─┐
//	package log, http.Server.ErrorLog  ──┼──> slog.Handler ──> │ line line line │ ──> one goroutine ──> standard error
//	                                           (Log.Logger)    └────────────────┘        write(2)
//	the error that ends the process    ─────────────────────────────^      no room: the line is dropped and counted
//
// A caller copies its line into the queue and returns: it never waits for a disk, a pipe or a terminal. When the reader
// of a pipe is gone, a disk is full or nobody reads, lines are lost and the service goes on. The first write that
// succeeds again begins with a line that has the number of those lost.
//
// All lines pass the handler of Log.Logger as records, before they are text. It bounds what strangers can make a server
// write: of a kind, which is a level, a message, and a lane or lease, 16 lines at once and then one a second; and 512 bytes of
// each text (rate.go).
//
// Owner: the command that serves. Close waits a moment for the queue, so that the last lines of a stop are written.
//
// What a crash does: after a panic, a fatal error or SIGQUIT the Go runtime writes the goroutines to standard error
// itself, without this package. Lines that are in the queue, or wait for their rate, are lost then. The queue is empty
// within microseconds, if somebody reads, and the dump has the cause. If nobody reads a full pipe, the runtime waits for
// it like any program: the supervisor's kill ends the process.
package logline
