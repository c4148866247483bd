// Package audit records what people did that makes no event: log-ins, changes of keys and settings, exports, and look-ups
// that showed codes or customers in clear.
//
//	service, HTTP ── Log.Append ──> SCRIP_AUDIT, one line each, for ever ──> Log.Read ──> scrip audit
//
// The stream denies deletions and purges, and only servers reach it: accounts close it to all others. Its lines are not
// sealed. A seal would show a forged line, and not a missing one; who can write to the stream can also stop it from being
// written. What changes coupons is in the event streams, with `by`, and those are sealed.
//
// The stream has no bound: what was recorded stays. Each key has a share of what it may have recorded at a server, and is refused beyond
// it, before it changes or sees anything. Others go on.
//
// Log-ins are recorded at most once an hour for each key and way of access, by each server.
//
// Owner: none; a log-in is written by a goroutine that ends within seconds.
//
// What a crash does: an entry is recorded before its action is answered, so an answered action has an entry. An entry
// without its action is possible, and an action that a crash cut off before its answer may lack one.
package audit
