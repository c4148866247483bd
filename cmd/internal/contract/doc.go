// Package contract holds the tests that meet the real binary the way outside programs do, and hold it to the contract (domain/CONTRACT.md)
// word by word: what is published and requested, what comes back, what stands in the event log and in SQL, what the
// command line prints and exits with, what `serve` writes and refuses.
//
//	test ── lines, requests ──> scrip serve (a process of its own) ──> outcomes, events, reminders, rows
//	  └── encoding/json, nats.go, pgx, os/exec and nothing of ours in between
//
// Nothing here encodes or decodes with the program's own packages, so a mistake made on both sides cannot cancel out.
// Most tests share one server and keep apart by the names of their campaigns. What an answer may hold is written as a
// pattern, see match; a field that the contract does not name is marked there with "?".
package contract
