package pgd

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-4a2410e3/scrip/streams/machine"
)

// hbaText admits by password only, and only over loopback and the socket; the superuser by the socket alone. Analysts may come
// from elsewhere, with TLS, and to the database with the read tables alone.
const hbaText = `# Written by scrip at each start.
local all +` + roleName + `_analyst reject
local all all scram-sha-256
host  all ` + superuserName + ` all reject
host  ` + roleName + ` +` + roleName + `_analyst 127.0.0.1/32 scram-sha-256
host  ` + roleName + ` +` + roleName + `_analyst ::1/128 scram-sha-256
hostssl ` + roleName + ` +` + roleName + `_analyst all scram-sha-256
host  all +` + roleName + `_analyst all reject
host  all all 127.0.0.1/32 scram-sha-256
host  all all ::1/128 scram-sha-256
`

// maxSocketPath is how long the path of a socket may be: 108 bytes on Linux, 104 on macOS and BSD, with the final zero.
const maxSocketPath = 103

const (
	mebibyte = 1 << 20
	// maxSharedBuffers holds the indexes of some ten million coupons: pages that are evicted are written again and again.
	maxSharedBuffers = 2048 * mebibyte
	minSharedBuffers = 16 * mebibyte
	// sharedBuffersPart: at most 1/8 of the memory, because lanes, NATS and PostgreSQL share the machine.
	sharedBuffersPart = 8
)

// configText returns the postgresql.conf of a place. Settings of extra come last and override the others; what an operator
// sets by ALTER SYSTEM is stored by PostgreSQL in its own file and overrides all of these. A postmaster that runs with
// another text is not adopted but restarted, hence the version in it.
func configText(p place, bin Binaries, extra map[string]string) string {
	type setting struct{ name, value, why string }
	settings := []setting{
		{"listen_addresses", "127.0.0.1", "a private cluster; the port is given on the command line"},
		{"unix_socket_directories", socketDirs(p), ""},
		{"hba_file", p.hba(), ""},
		{"ident_file", p.data() + "/pg_ident.conf", ""},
		{"password_encryption", "scram-sha-256", ""},
		{"authentication_timeout", "5s", "whoever connects and does not log in has a connection for so long"},
		{"max_connections", "300", "more than analysts and those who do not log in take; see package confine"},
		// With max_connections it takes 54 MB of memory, of which PostgreSQL writes each page when it starts.
		{"max_locks_per_transaction", "1024", "a reader of coupons locks each segment and its indexes; see package segments"},
		{"idle_in_transaction_session_timeout", "5min", "what a session has read stays locked until its transaction ends"},
		{"deadlock_timeout", "3s", "a rebuild waits for readers for less, and gives way before PostgreSQL ends one of them"},

		{"fsync", "on", "recovery from power loss instead of a rebuild"},
		{"full_page_writes", "on", ""},
		{"synchronous_commit", "on", "the projector turns it off for its own transactions: it can repeat them from the log"},
		{"wal_level", "minimal", "tables that can be rebuilt are not replicated"},
		{"max_wal_senders", "0", "required by wal_level = minimal"},
		{"max_wal_size", "2GB", "few checkpoints while a projector catches up"},
		{"min_wal_size", "2GB", "files of the WAL are used again, not made and filled with zeros"},
		{"backend_flush_after", "256kB", "pages reach the disk early and few at a time: the log's own fsyncs wait for the others"},
		{"wal_compression", bin.walCompression(p.data()), "new index pages go to the WAL whole, and PostgreSQL's own compression takes a third of a projector's CPU"},
		{"wal_writer_delay", "10ms", "commits reach the disk in small pieces: a large one delays the log's own fsyncs, and claims with them"},
		{"shared_buffers", strconv.FormatInt(sharedBuffers(machine.Memory().Bytes)/mebibyte, 10) + "MB", ""},
		{"jit", "off", "it costs more than it saves on short queries"},

		{"log_destination", "stderr", "pg_ctl leads it to postgres.log, which scrip rotates"},
		{"logging_collector", "off", ""},
		{"log_line_prefix", "%m [%p] ", ""},
		{"log_checkpoints", "off", ""},
		{"log_timezone", "UTC", ""},
		{"timezone", "UTC", ""},
		{"lc_messages", "C", "scrip reads some of them"},
	}
	if bin.Major >= 16 {
		settings = append(settings, setting{"reserved_connections", "50", "for role scrip"})
	}
	if bin.Major >= 17 {
		settings = append(settings, setting{"max_notify_queue_pages", "8192", "64 MB of disk and not 8 GB"})
	}
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		settings = append(settings, setting{name, extra[name], "set by the program"})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Written by scrip at each start of %s. Use ALTER SYSTEM for settings of your own.\n", bin.Version)
	for _, s := range settings {
		fmt.Fprintf(&b, "%s = %s", s.name, quote(s.value))
		if s.why != "" {
			fmt.Fprintf(&b, " # %s", s.why)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// quote writes a value for postgresql.conf, where quotes are doubled and backslashes escape.
func quote(v string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`, "\n", `\n`).Replace(v) + "'"
}

// socketDirs returns the place's run directory, or nothing if a socket's path would be too long for the system.
func socketDirs(p place) string {
	if len(p.run())+len("/.s.PGSQL.65535") > maxSocketPath {
		return ""
	}
	return `"` + strings.ReplaceAll(p.run(), `"`, `""`) + `"` // a list: quoted for commas and spaces
}

// sharedBuffers returns the size in bytes for a machine with that much memory, 0 = unknown.
func sharedBuffers(memory int64) int64 {
	if memory <= 0 {
		return maxSharedBuffers / 16
	}
	return min(max(memory/sharedBuffersPart, minSharedBuffers), maxSharedBuffers)
}
