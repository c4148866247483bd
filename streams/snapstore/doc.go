// Package snapstore stores snapshots of folded state in the object store: parts, a manifest, and a pointer in KV.
//
//	Save:  part 0, part 1, … ──> manifest (hash of every part) ──> pointer in SCRIP_STATE ──> remove older ones
//	                        ╳ crash: parts without a pointer, garbage that the next Save removes
//
//	Load:  pointer ──> newest snapshot ── complete, known format, accepted? ──> read
//	                       └─ else the one before ── else none: the caller folds the log from its first message
//
// Parts, because an object of hundreds of megabytes overruns the server's queue; paced, because the lane's events are written
// to the same disk.
//
// Owner: the owner of the named state; a Store is used by one goroutine at a time. Two owners at once (one of them has lost
// the lane) do no harm: every snapshot has names of its own.
//
// The pointer carries a seal for each snapshot (package seal): hashes prove that one is complete, the seal that a holder of
// the key wrote it. One without a valid seal is used only if it was taken before the log was sealed (Meta.Check).
//
// What a crash does: nothing worse than a longer fold. A snapshot is an accelerator; a bad one costs time and nothing else,
// and none is used before its hashes, its format and its position in the log are checked.
package snapstore
