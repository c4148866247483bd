// Package power has the test that simulates power cuts of the real binary, many times.
//
//	test ──> cutfs (keeps unsynced writes in memory) <── scrip serve, PostgreSQL, scrip backup, restore, replay, access
//	  │                                              │
//	  ├── SDK clients claim and redeem <─────────────┘ answers
//	  └── freeze, kill -9 of all, drop unsynced writes, start again: does it start? has the log every answer?
//
// The moment is random: after a number of changes of the file system, so that cuts occur between any two of them. One seed
// gives all choices; the order of concurrent work still differs from run to run.
//
// # The file system
//
// cutfs records which changes are synced, and drops the others on demand. It runs in a process of its own, which is this test
// binary, started with CUTFS_MOUNT.
//
//	scrip, PostgreSQL ──> kernel (page cache, mmap, flock) ──> /dev/fuse ──> process of the file system: tree in memory
//	test ── Freeze ──> no more replies   kill -9 of all that use it   Cut ──> unmount, drop, mount the rest
//
// # What is durable
//
//   - Contents of a file (data, size): by fsync, fdatasync or msync of it, or a write through O_SYNC or O_DSYNC.
//     sync_file_range, close, sync and syncfs do not count.
//   - A name (creation, link, rename, removal): by fsync of its directory. A rename between directories is one change, and is
//     made durable by the fsync of either. The fsync of a file does not keep its name: POSIX does not promise it.
//     Below the directories named by FS.Loose it does keep the first name of a new file and the names of new directories
//     above it. ext4, XFS and btrfs do so everywhere. NATS and PostgreSQL rely on it: neither syncs the directory
//     after it has made a message block or a table's file.
//   - Owner and mode: by fsync of the file or directory.
//
// # What is not durable
//
// The disk may have any part of the rest, since a kernel writes back when it likes: a Plan chooses. Within a directory
// changes of names keep their order, as in the journal of a file system; between directories they do not. Data is kept or
// dropped by pages of 4 KiB: such a page is never torn. A file that grew may get any size between the old and the new one,
// with zeroes where a page was dropped. Data and names are independent, so that a new name may lead to an empty file (as on
// ext4 without auto_da_alloc, and XFS).
//
// Reads always see what was written last, as by the page cache. The file system keeps owners, modes and hard links;
// it has no symbolic links and no extended attributes, and times are those of the last change.
package power
