// Package atomicfile creates, replaces and renames files so that a crash or a power cut leaves the old state or the new
// one, never a part.
//
//	temporary file ──> fsync ──> rename or link ──> fsync of the directory ──> return
//	      │                          │
//	      └ crash: the old file,     └ crash: the old file or the new one, both whole
//	        and a leftover that
//	        Sweep removes
//
// A file system may keep a new name and drop the data behind it: a rename before the fsync of the file leads to an empty
// file after a power cut. It may also drop a name whose file was fsynced: only the fsync of the directory keeps it. The
// test in cmd/internal/power cuts the power at both moments.
package atomicfile
