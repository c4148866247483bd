package schema

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/streams/access"
)

// Holder is the session that has a lock.
type Holder struct {
	PID   int       // of its process of PostgreSQL, 0 = it is a prepared transaction
	Role  string    // that logged in
	Name  string    // its application_name, which it chose
	Since time.Time // of its connection, zero = this role may not see it
	// Trusted: its role is a member of the one that owns the tables. An outsider can take the name of a process of
	// scrip, but not its role.
	Trusted bool
}

// Is reports whether the holder is a process of scrip with a name of ApplicationName.
func (h Holder) Is(what string) bool { return h.Trusted && strings.HasPrefix(h.Name, what) }

func (h Holder) String() string {
	if h.PID == 0 {
		return "a prepared transaction"
	}
	text := fmt.Sprintf("PostgreSQL process %d of role %s", h.PID, h.Role)
	if !h.Since.IsZero() {
		text += ", since " + h.Since.UTC().Format(time.RFC3339)
	}
	if h.Name != "" {
		return fmt.Sprintf("%s (%s)", h.Name, text)
	}
	return text
}

// End is what ends it.
func (h Holder) End() string {
	if name := access.SQLName(h.Role); name != "" {
		return "revoke that analyst's key: scrip access revoke " + name
	}
	if h.PID == 0 {
		return "end it with ROLLBACK PREPARED, see pg_prepared_xacts"
	}
	return fmt.Sprintf("end it as a superuser or as %s: SELECT pg_terminate_backend(%d)", h.Role, h.PID)
}

// ApplicationName returns an application_name for a connection that takes locks: at most 63 bytes that begin with what.
func ApplicationName(what string) string {
	host, _ := os.Hostname() // informative only
	name := fmt.Sprintf("%s, process %d on %s", what, os.Getpid(), host)
	return name[:min(len(name), 63)]
}

// One that is not trusted comes first: a lock that is shared has several.
const holderSQL = `
SELECT coalesce(l.pid, 0), coalesce(a.usename::text, ''), coalesce(a.application_name, ''), a.backend_start,
       coalesce(pg_has_role(a.usesysid, coalesce((SELECT nspowner FROM pg_namespace WHERE nspname = 'scrip'),
           (SELECT oid FROM pg_roles WHERE rolname = current_user)), 'MEMBER'), false) AS trusted
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.pid IS DISTINCT FROM pg_backend_pid() AND (l.pid IS NULL OR a.pid IS NOT NULL) AND `

const (
	// $1, $2 = upper and lower half of the lock's number
	advisoryHolderSQL = holderSQL + `l.locktype = 'advisory' AND l.classid::bigint = $1 AND l.objid::bigint = $2 AND l.objsubid = 1
ORDER BY trusted LIMIT 1`

	// Whose locks exclude lockTable.
	tableHolderSQL = holderSQL + `l.locktype = 'relation' AND l.relation = to_regclass('scrip_meta.format')
  AND l.mode IN ('ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
ORDER BY trusted LIMIT 1`
)

// HolderOf returns the session of another connection that has an advisory lock; found is false if none has it.
func HolderOf(ctx context.Context, db Querier, lock int64) (h Holder, found bool, err error) {
	return holder(ctx, db, advisoryHolderSQL, lock>>32, lock&0xffffffff)
}

func holder(ctx context.Context, db Querier, sql string, args ...any) (h Holder, found bool, err error) {
	var since *time.Time
	err = db.QueryRow(ctx, sql, args...).Scan(&h.PID, &h.Role, &h.Name, &since, &h.Trusted)
	if since != nil {
		h.Since = *since
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return h, false, nil
	}
	return h, err == nil, err
}
