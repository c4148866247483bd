// Package contract has the tests that use the real binary as outside programs do, and check it against the contract
// (domain/CONTRACT.md), byte by byte: commands and requests, outcomes and replies, events in the log, rows in SQL, output
// and exit codes of the command line, files and refusals of `serve`.
//
//	test ── lines, requests ──> scrip serve (a separate process) ──> outcomes, events, reminders, rows
//	  └── encoding/json, nats.go, pgx, os/exec and no package of scrip in between
//
// The tests do not encode or decode with the program's own packages, so equal errors on both sides cannot cancel out.
// Most tests share one server and use separate campaigns. The allowed content of an answer is written as a pattern, see
// match; a field that the contract does not name is marked there with "?".
package contract
