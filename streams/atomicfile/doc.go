// Package atomicfile creates, replaces, renames and locks files so that a crash or a power cut leaves the old state or the new
// one, never a part.
//
//	temporary file ──> fsync ──> rename or link ──> fsync of the directory ──> return
//	      │                          │
//	      └ crash: the old file,     └ crash: the old file or the new one, both complete
//	        and a leftover that
//	        Sweep removes
//
// A file system may keep a new name and lose its data: a rename before the fsync of the file leads to an empty file after a
// power cut. It may also lose the name of a synced file: only the fsync of the directory keeps it. The test in
// cmd/internal/e2e/power cuts the power at both moments.
package atomicfile
