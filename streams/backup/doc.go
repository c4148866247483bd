// Package backup copies a whole log out of a running NATS server into one directory, and back into an empty one.
//
//	Create:  KV_SCRIP_STATE ─ OBJ_SCRIP_SNAP ─ histories, deliveries ─ lane 0 ─ lane 1 … ──> DIR.incomplete/ ── fsync, rename ──> DIR/
//	                                                                    │
//	                         reminders ─ events ─ commands: each started when the one before it has its end;
//	                         until then the lane's owner purges no commands, and continues to decide
//
//	Open:    SHA256SUMS ─ manifest.json ─ code.key, or a given one ─ every file, decrypted
//	                                                             damaged, incomplete, newer, no key, no regular file: refused
//	         stream settings that are not scrip's                                                    planted: refused
//	CheckSeal: SHA256SUMS.seal, by the log's seal key                              foreign, changed, unsealed: refused
//
//	Restore: KV_SCRIP_STATE, marked ─ OBJ_SCRIP_SNAP ─ histories, deliveries ─ lanes ─ all copies current ──> mark removed
//
// The files of streams are encrypted by a key that is derived from the code key and the log (package age, in chunks), whether the
// code key lies beside them or not.
//
// Streams are copied by JetStream's own snapshot API, byte for byte: sequences, timestamps and headers stay, so every
// recorded position stays valid. Consumers and leases are not part of it. The histories of settings, keys and webhooks are,
// and the audit stream: what operators paused stays paused, and keys that were revoked stay so.
//
// So are the positions of webhooks and push senders, what waits for its next try, and dead letters. A restored server goes on
// delivering where each was when its position was copied: what was delivered after that is delivered again, under the same
// ids, and what was delivered before is not.
//
// The order makes the copy consistent. A stream's copy ends where the stream ended when its copying started. Reminders are written after their events and events after their commands, so the copy never holds an effect without
// its cause. Snapshots of state come first: they are used only if the events hold their position.
//
// Owner: the calling process; one restore at a time on a server (lock "restore"), one backup at a time of a lane's commands
// (lock "purge-3").
//
// What a crash does: of Create, it leaves DIR.incomplete, which the next Create removes; purging resumes within ten seconds.
// Of Restore, it leaves streams under the mark in the state bucket, with which no server starts; the next Restore removes
// exactly those and starts again.
package backup
