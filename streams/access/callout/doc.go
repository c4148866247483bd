// Package callout answers log-ins to NATS with keys, and disconnects users whose key was revoked.
//
//	client ── CONNECT, key as token or password ──> nats-server ── $SYS.REQ.USER.AUTH ──> one scrip server (queue group)
//	client <── account and permissions ──────────── nats-server <── signed user ───────── registry of keys
//
//	key revoked ──> every scrip server ── connections of this user? ──> all nats-servers ──> disconnect
//
// The permissions are those of package natsauth. The user's name is the id of the key: NATS puts it into the header
// Nats-Request-Info of requests to the service, see [User].
//
// Owner: every server that knows the code key runs one, so that a log-in is answered as long as one runs. The servers
// themselves log in with credentials of the NATS configuration.
//
// What a crash does: a log-in in flight is refused after two seconds, and clients try again; established connections stay.
// A server that is killed while it disconnects users leaves the rest to the others, or to its next start.
package callout
