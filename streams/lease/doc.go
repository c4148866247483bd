// Package lease spreads numbered pieces of work (lanes, mostly) evenly over the servers that are alive.
//
//	SCRIP_LEASE   server.lane.a   "a is alive"        written every TTL/4
//	              server.lane.b   "b is alive"
//	              lease.lane.0    "a works on 0"      written after its last revision, every 2 TTL
//	              lease.lane.1    "b works on 1"
//
//	desired(0), desired(1), … = a function of the sorted names alive, the same on every server
//	    mine, and free, or its holder silent → take it, run the work
//	    no longer mine                       → cancel the work, wait for it, delete the lease: the next owner takes it at once
//	    seen to be another's                 → cancel the work
//
// Owner: Run, one goroutine per group and server, owns all state; the work runs in a goroutine per lease, and so does each
// write to the bucket, which returns its result to Run.
//
// A lease is a hint about which server should work, never a permission: two servers can believe in the same lease while one
// is paused or cut off. The fence on the log makes that harmless. So everything here may fail, be late or be read from a
// replica that lags, and costs time only.
//
// # Silence
//
// A server that gets no answer gives nothing up: the bucket may be electing a leader while the lanes' own streams are
// healthy. It continues until it sees that another server has its lease, or until the fence of the log rejects it; then it
// checks with the bucket ([Manager.Confirm]) before it tries again. Package lane bounds the answers of an owner that was cut
// off.
//
// The others take the leases of a server whose announcements have not changed for a TTL (4 s), provided that they can
// distinguish its silence from the bucket's: their own announcements must have been acknowledged, and read back, without a
// gap for 3/4 TTL. Every takeover is a compare-and-set on the revision last seen, so a view that lags takes nothing from a
// server that still writes. A machine too busy to write without a gap takes leases after 3 TTL of silence, but not within a TTL
// of an outage of the bucket, after which the others are about to write, too.
//
// How long a lane is without an owner, with a TTL of 4 s:
//
//	a server dies, stops or is cut off             silence 4 s, of which up to 1 s before; the tick up to 1 s: 3 to 5 s
//	and the bucket's leader with it                election 4 to 9 s (nats-server 2.15, median 6 s), then 3 s: 7 to 12 s
//	a node of NATS dies, the bucket's leader too   0: no lease moves; the streams have elections of their own
//	a server is stopped cleanly                    0: it deletes its leases
//
// The load of the lane is added to that. Keys expire after 3 TTL (announcements) and 8 TTL (leases), longer than an election,
// so that an election frees no lease that has a holder. A key that nats-server keeps for ever, because it forgot the TTL in a
// crash, delays nothing: silence is measured from when a revision was first seen, and a takeover is a write.
//
// What a crash does: the server is silent and the others take over. Restarted under the same name before that, it takes its
// predecessor's leases at once. A second running server with the same name, from a copied data directory, is refused
// ([ErrTwin]).
//
// # Locks
//
// A [Lock] is a named lock with a TTL in the same bucket, by which a tool stops an activity of all servers for a while:
//
//	scrip backup ── TakeLock "purge-3" ──> key hold.purge-3, TTL 10 s ──> Run renews it every 3 s
//	                                           └── Locked? ── the present owner of lane 3, before it purges
//
// It does not depend on a lane's owner, so a takeover does not end it. A lock has one holder at a time.
//
// What a crash does: the key is not renewed and expires within ten seconds; if NATS crashed as well, perhaps only within a
// minute. A holder that was paused for longer finds out at its next renewal; it must check by other means what it did
// in that time, since others continued.
package lease
