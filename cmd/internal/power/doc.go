// Package power holds the test that cuts the power under the real binary, again and again.
//
//	test ──> cutfs (holds what is not synced) <── scrip serve, PostgreSQL, scrip backup, restore, replay, config
//	  │                                              │
//	  ├── SDK clients claim and redeem <─────────────┘ answers
//	  └── freeze, kill -9 of all, drop what was not synced, start again: does it start? is what was answered there?
//
// The moment is chosen by chance: a number of changes of the file system, so that cuts fall between any two steps of what
// is being done. One seed gives all choices; what runs beside each other still differs from run to run.
package power
