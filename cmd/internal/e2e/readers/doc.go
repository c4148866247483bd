// Package readers rebuilds the read tables beside readers that never pause and one that idles in a transaction.
//
//	claims in bursts, redemptions ──> scrip serve (a process, with its PostgreSQL) <── scrip rebuild, again and again
//	                                     ^
//	ten readers: counts, transactions, snapshots (SQL, as analysts), exports, pages (HTTP)
//	one that idles in a transaction until PostgreSQL ends its session, and comes back
//
// Claims come in bursts with pauses, so that segments of the tables are begun, sealed, merged and dropped meanwhile.
// Every read is compared with what is known: it has at least what a read before it had, and at most what was asked for
// when it ended. Reads in one snapshot agree with each other. No rebuild may fail, and no read may end but by its own
// timeout.
//
// A run of five minutes or more ends with a time without rebuilds. In it one snapshot is older than a merge of segments,
// and the segments that were merged are dropped when it has ended, beside the readers. It waits in a transaction, for
// which a rebuild would have to wait.
//
// Whatever fails is one line: which reader, the SQLSTATE, when, and what the rebuild did then. A crash of the test
// leaves the server running, as in package e2e.
package readers
