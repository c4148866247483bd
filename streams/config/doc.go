// Package config holds what operators change while servers run, and every change they ever made.
//
//	scrip config set ── Set ──> KV SCRIP_CONFIG   change.0000000001   {"setting":"reminder.batch","value":"200",
//	                                              change.0000000002    "was":"default","by":"ann@ops1","at":"…"}
//	                                                   │
//	                      every server: Live.Run, folds all of them from the first, then each as it comes
//	                                                   │
//	                                             Source.Current ──> lanes, schedulers
//
// One key per change, made once: whoever changes takes the number behind the last one, and who finds it taken looks again
// and takes the next. The stream below the bucket takes no second message for a key, nor deletions: the history is the
// settings, and what is in force is its fold.
//
// A change that this version does not understand, or that makes no sense, stays in the history, is counted, logged once,
// and shown with the reason why it is ignored. What held before it stays in force. So does everything while NATS is away.
//
// A bucket that is lost takes nothing out of force at servers that run: what held stays, and they say so. A server that
// starts makes the bucket anew and has the defaults; the others keep what held while that one is empty. The first change in
// it begins a new history: it is in force everywhere, and all else is back to its default.
//
// The bucket also holds, under keys of their own (skip.<stream>.<sequence>.<hash>), which messages of the log every reader is
// to pass over: see Skip and package eventlog. They are no settings, and like those are never removed.
//
// Owner: Live.Run, one goroutine of the caller's; Store has no goroutine.
//
// What a crash does: of a server, nothing; it folds again when it starts. Of whoever was setting, the change is there or
// not; the history says which.
package config
