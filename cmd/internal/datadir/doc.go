// Package datadir is the directory that one server keeps its things in, and that clients look into to find the server.
//
//	<data>/lock        flock: one server, let go by the kernel when it dies; holds the owner's pid
//	<data>/format      the version of this layout, 1
//	<data>/server.id   who this server is in leases, a UUID
//	<data>/code.key    the code key, 0600: 64 hex digits, made only by the creator of a log
//	<data>/credentials what the server asks of NATS clients and of readers of profiles, USER:PASSWORD, 0600; made at
//	                   the first start
//	<data>/scrip.json  where the running server is to be found, 0600; there only while it serves
//	<data>/nats        the embedded NATS server's store
//	<data>/nats.restoring   what it is called until `scrip restore` has all of it; an interrupted one is started over
//	<data>/postgres    the private PostgreSQL cluster
//
// Owner: the server that holds the lock; clients only read scrip.json.
//
// What a crash does: the kernel drops the lock. Files are replaced by rename, so each is the old one or the new one.
// A scrip.json left behind is removed by the next server; until then clients see that its process is gone.
package datadir
