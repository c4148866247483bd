// Package snapstore keeps snapshots of folded state in the object store: parts, a manifest, and a pointer in KV.
//
//	Save:  part 0, part 1, … ──> manifest (hash of every part) ──> pointer in SCRIP_STATE ──> remove what is older
//	                        ╳ crash: parts without a pointer, garbage that the next Save removes
//
//	Load:  pointer ──> newest snapshot ── whole, known format, accepted? ──> read
//	                       └─ else the one before ── else none: the caller folds the log from its beginning
//
// Parts, because an object of hundreds of megabytes overruns the server's queue; paced, because the lane's events pass
// through the same disk.
//
// Owner: whoever owns the named state; a Store is used by one goroutine at a time. Two owners at once (one of them a
// zombie) do no harm: every snapshot has names of its own.
//
// The pointer carries a seal for each snapshot (package seal): hashes say that one is whole, the seal says whose it is. One
// without a valid seal is used only if it was taken before the log was sealed (Meta.Check).
//
// What a crash does: nothing worse than a longer fold. A snapshot is an accelerator; everything that can be wrong with
// one only costs time, and none is ever believed without its hashes, its format and its position in the log.
package snapstore
