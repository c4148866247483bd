// Package durable holds the test that watches the system calls of the real binary: with --sync always, an fsync of the
// stream's file lies between the write of a message and the first byte of the answer that speaks of it.
//
//	strace ── scrip serve:  pwrite64(…/SCRIP_EVT_0/msgs/1.blk, "… event …")
//	                        fsync(…/SCRIP_EVT_0/msgs/1.blk) = 0
//	                        write(TCP, "PUB _INBOX… outcome")
//
// It needs strace and the permission to trace a child; where either is missing it fails and says so, because a promise
// nobody looked at is not kept.
package durable
