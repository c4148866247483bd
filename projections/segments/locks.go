package segments

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-4a2410e3/scrip/projections/schema"
)

const (
	// A transaction that reads coupons locks segmentLocks of each segment: its table, the key and two indexes. One that reads
	// all of schema scrip locks otherLocks besides.
	segmentLocks, otherLocks = 4, 100
	// readerLocks is the most that a reader has. In a rush there are crowds of young and of merged segments, until merging
	// comes first, and what is being merged.
	readerLocks = segmentLocks*(2*crowd+mergeOf) + otherLocks
	// mostIdle is how long a session may wait in a transaction. What it has read stays locked for so long: segments that
	// were merged, and views that a rebuild is to replace.
	mostIdle = 5 * time.Minute
)

// Loose is a setting of PostgreSQL that does not bound what readers of coupons take.
type Loose struct {
	What string
	Fix  string // names the value
}

// The setting of a role may differ from the server's, and that of db from both: the sessions of others have the role's.
const boundsSQL = `
SELECT current_setting('max_locks_per_transaction')::bigint, current_setting('max_connections')::bigint,
       current_setting('max_prepared_transactions')::bigint,
       (SELECT setting::bigint FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout')`

// Bounds returns the settings of a PostgreSQL that do not bound readers. db is a session with the defaults of its role.
func Bounds(ctx context.Context, db schema.Querier) (all []Loose, err error) {
	var each, connections, prepared, idle int64
	if err := db.QueryRow(ctx, boundsSQL).Scan(&each, &connections, &prepared, &idle); err != nil {
		return nil, fmt.Errorf("reading the settings of PostgreSQL: %w", err)
	}
	if room := each * (connections + prepared); room < readerLocks*connections {
		all = append(all, Loose{
			fmt.Sprintf("max_locks_per_transaction is %d: there is room for %d locks, and each of %d connections that reads coupons "+
				`may take %d; beyond that all readers and the read tables fail with "out of shared memory"`,
				each, room, connections, readerLocks),
			fmt.Sprintf("set max_locks_per_transaction = %d and restart PostgreSQL", leastLocks(connections, prepared))})
	}
	if wait := time.Duration(idle) * time.Millisecond; wait == 0 || wait > mostIdle {
		have := "is 0, which is no limit"
		if wait > 0 {
			have = "is " + wait.String()
		}
		all = append(all, Loose{
			"idle_in_transaction_session_timeout " + have +
				": a session that waits in a transaction keeps merged segments, and rebuilds wait for it",
			fmt.Sprintf("set idle_in_transaction_session_timeout = '%dmin' and reload PostgreSQL", mostIdle/time.Minute)})
	}
	return all, nil
}

// leastLocks is the max_locks_per_transaction with which each connection may read coupons: a power of two, so that there
// is some room.
func leastLocks(connections, prepared int64) int64 {
	least := int64(64) // PostgreSQL's default
	for least*(connections+prepared) < readerLocks*connections {
		least *= 2
	}
	return least
}
