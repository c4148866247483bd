// Package datadir is the directory in which one server stores its files, and in which clients find its address.
//
//	<data>/lock        flock: one server; the kernel releases it when the process ends; contains the owner's pid
//	<data>/format      the version of this layout, 1
//	<data>/server.id   the server's UUID in leases
//	<data>/code.key    the code key, 0600: 64 hex digits, created only with a new log
//	<data>/credentials required of NATS clients and for profiles, USER:PASSWORD, 0600; created at the first start
//	<data>/scrip.json  the addresses of the running server, 0600; exists only while it serves
//	<data>/nats        the embedded NATS server's store
//	<data>/nats.restoring   the store's name until `scrip restore` is complete; the next restore removes it
//	<data>/backups     what scrip backup takes, unless serve has --backups
//	<data>/postgres    the private PostgreSQL cluster
//
// All but the last two are their owner's alone. Platforms give others rights (fsGroup of Kubernetes, a copy): each start takes them back.
//
// Owner: the server that holds the lock; clients only read scrip.json. A directory that is moved takes its lock with it: the server
// looks four times a second whether its path still leads there, and ends without a stop if not.
//
// What a crash does: the kernel releases the lock. Files are replaced by rename, so each is the old one or the new one.
// The next server removes a stale scrip.json; until then clients detect that its process has ended.
package datadir
