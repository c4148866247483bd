// Package settings holds the settings that operators change while servers run, and every change ever made to them: a registry,
// see package registry.
//
//	scrip config set ── Store.Set ──> KV SCRIP_CONFIG   change.0000000001   {"change":[{"setting":"reminder.batch","value":"200",
//	                                                    change.0000000002    "was":"default"}],"by":"ann@ops1","at":"…"}
//	                                                         │ every server: Live.Run
//	                                                   Source.Current ──> lanes, schedulers
//
// The bucket also holds the skip list, under keys of their own (skip.<stream>.<sequence>.<hash>): see Store.Skip and package
// eventlog. They are no settings, and like those are never removed.
//
// Owner: the goroutine that the caller runs Live.Run in; Store has no goroutine.
//
// What a crash does: of a server, nothing; it folds again when it starts. Of a program that sets, the change is stored or
// not; the history shows which.
package settings
