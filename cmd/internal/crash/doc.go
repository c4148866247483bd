// Package crash holds the tests that kill, stop and starve the real binary, and hold what is left against the promises.
//
//	test ── starts ──> scrip serve (a process of its own) ── SIGKILL, SIGSTOP ──> is what was answered in the log?
//	  └── SDK client, which lives through it all                                  do the tables equal the log?
package crash
