// Package pgd runs the private PostgreSQL cluster that scrip makes for itself when no --postgres URL is given.
//
//	scrip ──owns──> <place>/lock           flock: one owner, let go by the kernel when the owner dies
//	  │             <place>/password       of role scrip, 0600
//	  │             <place>/admin.password of role postgres, the superuser, 0600
//	  │             <place>/postgresql.conf, pg_hba.conf   written anew at each start
//	  │             <place>/postgres.log   what the postmaster says (and postgres.log.1)
//	  └──child────> postgres -D <place>/data               loopback and socket only, on a free port
//	                <place>/run            its socket
//	                <place>/new-<random>   initdb at work; its cluster is renamed to data when whole
//
// The place is <data>/postgres. PostgreSQL refuses to run as root; started as root, scrip runs it as user postgres (or
// nobody), and where that user cannot reach the data directory, as below /root, the place is /var/lib/scrip/<hash>;
// the file <data>/postgres.place then names it. Everything in the place except data and run belongs to the user who
// runs scrip, so that the unprivileged user cannot make root write elsewhere through a planted link. Links in the data directory
// that root did not make are refused where root runs scrip; where its owner exchanges directories while scrip starts, that check
// can be too late, so root should not serve the directory of somebody who is not trusted.
//
// Role scrip owns database scrip and may make others, but it is no superuser: whoever reads scrip.json, and whoever writes
// SQL for it, cannot run programs or read files as the user that PostgreSQL runs as. Role postgres can, and is let in by the
// socket only; an administrator finds its password in the place. Clusters of earlier versions are changed at their start.
//
// The tables in the cluster are a fold of the log and can be rebuilt from it. That is why a cluster may be set aside
// when it is not ours or not readable, and never repaired by hand.
//
// A cluster of a major version that is not installed any more is renamed to <place>/data.postgresql-<version>, and a new one is made.
// It is never deleted: it may have what others made in it.
//
// What a crash does:
//
//   - scrip dies in initdb: <place>/new-<random> is left; the next start removes it and begins again beside it.
//   - scrip dies while it changes the roles of a cluster that an earlier version made: the next start does it again.
//   - scrip dies (kill -9): on Linux the kernel tells the postmaster to stop (parent death signal). Should it live on,
//     the next start finds it by postmaster.pid, makes sure that it is a postgres of this very directory, and stops it.
//   - a postmaster.pid is left whose number now belongs to a stranger: the stranger is not touched and does not keep
//     the cluster from starting.
//   - the postmaster dies: Cluster.Run starts it again, on the same port if that is still free.
//   - the machine loses power: PostgreSQL recovers from its WAL (fsync is on).
package pgd
