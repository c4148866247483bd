// Package pgd runs the private PostgreSQL cluster that scrip makes for itself when no --postgres URL is given.
//
//	scrip ──owns──> <place>/lock           flock: one owner, released by the kernel when the owner dies
//	  │             <place>/password       of role scrip, 0600
//	  │             <place>/admin.password of role postgres, the superuser, 0600
//	  │             <place>/port           the port, so that its address stays
//	  │             <place>/postgresql.conf, pg_hba.conf   written at each start
//	  │             <place>/postgres.log   output of the postmaster (and postgres.log.1)
//	  └──pg_ctl───> postgres -D <place>/data               loopback and socket, and Options.Host with TLS
//	                <place>/run            its socket
//	                <place>/new-<random>   initdb in progress; its cluster is renamed to data when complete
//
// pg_ctl starts the postmaster, which is then no child of scrip, and waits until it is ready. Signals stop it. Run looks four
// times a second whether its process is there, and starts another one if not.
//
// The place is <data>/postgres. PostgreSQL refuses to run as root; started as root, scrip runs it as system user scrip-postgres,
// whom it makes, so that no other program can read its files or signal it. A cluster that is there is run as its owner. If the
// user cannot reach the data directory, as below /root, the place is /var/lib/scrip/<hash>; the file <data>/postgres.place then
// names it. Everything in the place except data and run belongs to
// the user who runs scrip, so that the unprivileged user cannot make root write elsewhere through a planted link. If root
// runs scrip, links in the data directory that root did not make are refused. An owner who exchanges directories while scrip
// starts can evade that check, so root should not serve the directory of an untrusted user.
//
// Role scrip owns database scrip and may make others, but it is no superuser: a reader of scrip.json, or an author of SQL
// for it, cannot run programs or read files as the user that PostgreSQL runs as. Role postgres can, and is admitted by the
// socket only; an administrator finds its password in the place.
//
// The tables in the cluster are a fold of the log and can be rebuilt from it. So a cluster of a major version that is not
// installed any more is renamed to <place>/data.postgresql-<version>, one of an earlier data directory to data.former, and a
// new one is made. None is deleted: it may hold data of others.
//
// What a crash does:
//
//   - scrip dies in initdb: <place>/new-<random> is left; the next start removes it and starts again in another one.
//   - scrip dies while it sets lost passwords: the next start sets them again.
//   - scrip dies (kill -9): PostgreSQL goes on. The next start finds it by postmaster.pid, checks that it is a postgres of this
//     very directory, by whatever path, and adopts it: connections stay. If its configuration, which has that path, or its
//     version is not what that start would give it, or a password is lost, it is stopped and started again. If there is no
//     next start, pg_ctl stops it; or remove the data directory, and it ends by itself within a minute.
//   - scrip dies in a start or stop of PostgreSQL: the next start waits for the end of either.
//   - a postmaster.pid is left whose process id now belongs to another program: that program is not touched and does not
//     keep the cluster from starting.
//   - the postmaster dies: Cluster.Run starts it again, on the same port if that is still free. The next start tries the kept one.
//   - the machine loses power: PostgreSQL recovers from its WAL (fsync is on).
package pgd
