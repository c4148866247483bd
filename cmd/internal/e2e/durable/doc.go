// Package durable has the test that traces the system calls of the real binary: with --sync always, there is an fsync of
// the stream's file between the write of a message and the first byte of its answer.
//
//	strace ── scrip serve:  pwrite64(…/SCRIP_EVT_0/msgs/1.blk, "… event …")
//	                        fsync(…/SCRIP_EVT_0/msgs/1.blk) = 0
//	                        write(TCP, "PUB _INBOX… outcome")
//
// It needs strace and the permission to trace a child. If either is missing it fails with that reason: a skipped test
// would not check the promise.
package durable
