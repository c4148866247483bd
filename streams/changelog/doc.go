// Package changelog holds a history of changes in a KV bucket that only grows, and folds it on every server.
//
//	Bucket.Write ──> KV bucket   change.0000000001  {…}      one key for each change, created once
//	                             change.0000000002  {…}
//	                                  │ eventlog.Feed
//	               every server: Follower.Run, folds all of them from the first, then each new one
//
// A writer takes the number after the last one, and if that is taken it reads again and takes the next. The stream of the
// bucket accepts no second message for a key, and no deletions: the history is the state, and what is in force is its fold.
//
// A lost bucket takes nothing out of force at running servers. A server that starts makes a new bucket, which is empty; the
// others keep what they have while that one is empty. The first change in it starts a new history.
//
// Owner: the goroutine that the caller runs Follower.Run in. A Bucket has no goroutine.
//
// What a crash does: of a server, nothing; it folds again when it starts. Of a writer, the change is stored or not; the
// history shows which.
package changelog
