// Package access is who may do what: roles, the table of operations, and the keys of users.
//
//	scrip access create, HTTP ──> Store ──> KV SCRIP_ACCESS, a history that only grows (package registry)
//	                                        │
//	                     every server: Registry.Run ──> Registry.Authenticate(key) ──> Principal ──> May(operation, campaign)
//	                                                                   ▲
//	                             NATS log-in (auth callout), HTTP (Authorization: Bearer)
//
// A key is printed once. The bucket holds its SHA-256, its role and its scope; a key has 176 random bits, so a fast hash is
// enough. The table of operations is the one source of permissions: by NATS subject, by HTTP route, by CLI command.
//
// The store checks who makes a change, so every way to it has the same rules: operators alone, and none of them makes or
// replaces a key that sees more than its author.
//
// Servers keep the keys that they have read while NATS is away. A server that has not read them refuses all keys. When a
// key was used last is kept in memory and stored at most once an hour.
//
// Owner: the goroutine that the caller runs Registry.Run in, and those that it starts; Store has no goroutine.
//
// What a crash does: of a server, nothing but up to an hour of last uses; it folds the keys again when it starts. Of a
// program that changes keys, the change is stored or not: `scrip access list` shows which. A key that was stored and not
// printed has no owner and can be revoked. A replacement is one change: both keys are there, or the old one is as it was.
package access
