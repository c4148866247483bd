// Package lease spreads numbered pieces of work (lanes, mostly) evenly over the servers that are alive.
//
//	SCRIP_LEASE   server.lane.a   "a is alive"        TTL, renewed
//	              server.lane.b   "b is alive"
//	              lease.lane.0    "a works on 0"      TTL, renewed behind the last revision
//	              lease.lane.1    "b works on 1"
//
//	desired(0), desired(1), … = a function of the sorted names alive, the same on every server
//	    mine, and free      → take it, run the work
//	    mine no more        → cancel the work, wait for it, delete the lease: the next owner takes it at once
//
// Owner: Run, one goroutine per group and server, owns all state; the work runs in a goroutine per lease.
//
// A lease is a hint about who should work, never a permission: two servers can believe in the same lease while one is
// paused or cut off. What makes that harmless is the fence on the log. So everything here may fail, be late or be read
// from a replica that lags, and costs time only.
//
// What a crash does: the server's leases run out after the TTL and its announcement with them, and the others take over.
// Started again under the same name before that, it takes its predecessor's leases at once.
package lease
