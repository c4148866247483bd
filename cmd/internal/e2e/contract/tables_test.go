package contract

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// caught waits until the tables have what the log has now.
func (r *rig) caught(t *testing.T) {
	t.Helper()
	ends := make([]uint64, r.desc.Lanes)
	for lane := range ends {
		ends[lane] = r.stream(t, fmt.Sprintf("SCRIP_EVT_%d", lane)).State.LastSeq
	}
	streamtest.Eventually(t, "the tables have caught up", func() bool {
		for lane, end := range ends {
			var at int64
			err := r.db.QueryRow(t.Context(), `SELECT sequence FROM scrip.checkpoint WHERE lane = $1`, lane).Scan(&at)
			if err != nil && !errors.Is(err, pgx.ErrNoRows) {
				t.Fatal(err)
			}
			if uint64(at) < end {
				return false
			}
		}
		return true
	})
}

// stream requests the state of a stream from JetStream.
func (r *rig) stream(t *testing.T, name string) *nats.StreamInfo {
	t.Helper()
	js, err := r.nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	info, err := js.StreamInfo(name)
	if err != nil {
		t.Fatalf("stream %s: %v", name, err)
	}
	return info
}

// rows reads rows as JSON objects once the tables have what the log has.
func (r *rig) rows(t *testing.T, query string, args ...any) [][]byte {
	t.Helper()
	r.caught(t)
	rows, err := r.db.Query(t.Context(), "SELECT row_to_json(x)::text FROM ("+query+") x", args...)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return list
}
