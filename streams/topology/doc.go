// Package topology is the log's structure as data: names, subjects, headers, stream configurations, and the one function
// that creates the log.
//
//	           KV SCRIP_STATE, key "log"  ← arbiter: the creator of this key chooses the log's UUID, lanes and code key
//	                    │
//	       ┌────────────┼──────────────┐
//	SCRIP_CMD_<lane>  SCRIP_EVT_<lane>  SCRIP_RMD_<lane>     each carries the same identity in its metadata
//	commands, purged  events, for ever  fired reminders, for ever
//
//	KV SCRIP_LEASE  owners of lanes (a hint)        objects SCRIP_SNAP  snapshots (an accelerator)
//
// The identity has the log's format. A log of a higher one is refused.
//
// Owner: none. Every server calls Ensure at each start; servers that start at once converge on what the key's creator
// wrote.
//
// What a crash does: before the key is created, nothing happened. After it, the identity is fixed but marked incomplete, and
// the next start creates the streams still missing. Once the identity is complete a missing stream is a lost stream, never a
// new one: Ensure refuses instead of starting an empty lane whose campaigns, codes and positions are lost. Leases and
// snapshots are created again freely: they hold nothing that the log does not.
package topology
