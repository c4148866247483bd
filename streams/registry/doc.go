// Package registry holds versioned registries: each is a history of changes in a KV bucket that only grows, and its fold.
//
//	Registry.Write ──> KV bucket   change.0000000001  {"change":{…},"by":"ann","at":"…"}     one key for each change, created once
//	      │                        change.0000000002  {…}
//	      └──> audit stream             │ eventlog.Feed
//	                 every server: Live.Run, folds all of them from the first, then each new one ──> what is in force
//
// Settings, keys and webhooks are registries. Their packages have the record of a change, the state that changes are folded
// into, and the rules; Spec is what they give to this one.
//
// A writer takes the number after the last one, and if that is taken it reads again and takes the next. The stream of the
// bucket accepts no second message for a key, and no deletions: the history is the state, and what is in force is its fold.
// A change is recorded in the audit stream before its writer returns.
//
// A change that this version does not understand, or that is not valid, stays in the history, is counted, logged once, and
// shown with the reason why it is ignored. What was in force before it stays so.
//
// A lost bucket takes nothing out of force at running servers. A server that starts makes a new bucket, which is empty; the
// others keep what they have while no change in that one is in force. The first such change starts a new history.
//
// Owner: the goroutine that the caller runs Live.Run in. A Registry has no goroutine.
//
// What a crash does: of a server, nothing; it folds again when it starts. Of a writer, the change is stored or not; the
// history shows which. One that was not answered may lack its entry in the audit stream.
package registry
