// Package crash has the tests that kill and stop the real binary, and then check the promises.
//
//	test ── starts ──> scrip serve (a separate process) ── SIGKILL, SIGSTOP ──> is every answer in the log?
//	  └── SDK client, which runs the whole time                                 do the tables equal the log?
package crash
