// Package settings holds the settings that operators change while servers run, and every change ever made to them.
//
//	scrip config set ── Store.Set ──> KV SCRIP_CONFIG   change.0000000001   {"setting":"reminder.batch","value":"200",
//	                                                    change.0000000002    "was":"default","by":"ann@ops1","at":"…"}
//	                                                         │ eventlog.Feed
//	                            every server: Live.Run, folds all of them from the first, then each new one
//	                                                         │
//	                                                   Source.Current ──> lanes, schedulers
//
// There is one key per change, created once: a writer takes the number after the last one, and if that is taken it reads
// again and takes the next. The stream of the bucket accepts no second message for a key, and no deletions: the history is
// the settings, and the values in force are its fold.
//
// A change that this version does not understand, or whose value is not valid, stays in the history, is counted, logged
// once, and shown with the reason why it is ignored. The previous value stays in force. So do all values while NATS is
// unreachable.
//
// A lost bucket takes nothing out of force at running servers: their values stay, and their status reports it. A server that
// starts makes a new bucket and has the defaults; the others keep their values while that one is empty. The first change in
// it starts a new history: it is in force everywhere, and every other setting has its default.
//
// The bucket also holds the skip list, under keys of their own (skip.<stream>.<sequence>.<hash>): see Skip and package
// eventlog. They are no settings, and like those are never removed.
//
// Owner: the goroutine that the caller runs Live.Run in; Store has no goroutine.
//
// What a crash does: of a server, nothing; it folds again when it starts. Of a program that sets, the change is stored or
// not; the history shows which.
package settings
