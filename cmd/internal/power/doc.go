// Package power has the test that simulates power cuts of the real binary, many times.
//
//	test ──> cutfs (keeps unsynced writes in memory) <── scrip serve, PostgreSQL, scrip backup, restore, replay, config
//	  │                                              │
//	  ├── SDK clients claim and redeem <─────────────┘ answers
//	  └── freeze, kill -9 of all, drop unsynced writes, start again: does it start? has the log every answer?
//
// The moment is random: after a number of changes of the file system, so that cuts occur between any two of them. One seed
// gives all choices; the order of concurrent work still differs from run to run.
package power
