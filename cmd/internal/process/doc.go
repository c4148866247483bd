// Package process runs other programs as processes that can be killed, stopped and continued: for tests of the real binary
// and for `make cluster`.
//
//	Start ──> Process ──> output appended to a file, signals, exit code
//	Serve ──> Server  ──> the same for `scrip serve`, with its addresses from <data>/scrip.json
//	Family ─> a process and its descendants, for programs that fork
//
// It uses none of the program's packages: what it reads of a server is what outside programs may read.
//
// Owner: who started the process. If that crashes, the processes go on.
package process
