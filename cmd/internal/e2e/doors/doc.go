// Package doors measures what claims lose while others use the server as far as they may: an analyst, a support key and a stranger.
//
//	test ── claims, 8 callers ──────────────────────────> scrip serve (a separate process, with its PostgreSQL)
//	  └── starts ──> attackers (a process) ── at rates ──────┘   NATS, HTTP, SQL
//
//	turns: calm, attacked, calm, attacked, … calm;  ratio = median attacked / median calm
//
// Callers wait for each answer, so calm claims leave CPU to others. Attackers stand for other machines: they run while nothing else
// wants the CPU, and print how often each did what it does. Their requests have rates, which are in the table of attackers_test.go,
// near those at which a review found claims at a half or less. Only searches for commands and statements have none.
//
// TestClaimsBesideLists does likewise with callers of lists that no index serves: claims may take three times as long as calm ones, and
// their rows reach the tables within a second.
//
// At the end the key of the analyst is revoked: sessions that run a statement, are in a transaction, or start anew read nothing two
// seconds later.
//
// The attackers are the test's own program, started again with a variable. They end when the test does: then their standard input
// is closed.
package doors
