// Package natsauth is who may do what on NATS, as data: the accounts, what each imports from the servers' account, and the
// permissions of each key.
//
//	SHOP      producers          ┐
//	COUNTER   limited producers  │  imports: the subjects of the table, and nothing else
//	OPS       operators, support ├──────────────────────────────> SCRIP  servers, and the credentials of the data directory
//	ANALYSIS  analysts           │  a reply comes back as _R_.…,           streams, buckets, the JetStream API
//	SENDERS   senders            ┘  and is published in the requester's account
//
// Permissions alone do not suffice: NATS checks what a client publishes to, and not what it names as reply subject. Every
// answer, also of NATS itself, is published there. In an account of its own a reply subject such as scrip.evt.1 is that
// account's, where no stream listens.
//
// NATS passes a reply on if its subject is one that the requester's account imports. So all users of an account may publish to
// all that it imports, or what it imports has no effect with such a message: the endpoints of the service refuse an outcome,
// a PubAck and an empty message as a command. Producers that are limited to campaigns, and public ones, are in an account
// without the subjects of the log.
//
// The table follows from the operations of package access and from topology. It is rendered as one text, which the embedded
// server and separate nats-servers load, and as the permissions in the answer to a log-in (package callout). The servers' own
// user has what servers, a backup and a restore need (OfServers), and nothing else of its account.
//
// A node that joins a NATS cluster is above all accounts. So nodes require a password of each other, which follows from the code
// key (RoutesPassword).
//
// Owner: none, it is data. A crash has no effect.
package natsauth
