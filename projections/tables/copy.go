package tables

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// copyRows collects rows in the binary format of COPY. By hand because a claim is mostly this: pgx's CopyFrom boxes
// every value, which costs more than all the rest of the fold.
type copyRows struct {
	buf   []byte
	count int
}

// postgresEpoch is 2000-01-01T00:00:00Z, where PostgreSQL's timestamps begin.
const postgresEpoch wire.Instant = 946_684_800_000_000

// expect makes room for that many bytes.
func (r *copyRows) expect(bytes int) { r.buf = make([]byte, 0, bytes) }

// row begins a row of that many fields; as many calls of the methods below must follow.
func (r *copyRows) row(fields int) {
	if len(r.buf) == 0 {
		// Signature, no flags, no header extension.
		r.buf = append(r.buf, "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	}
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(fields))
	r.count++
}

func (r *copyRows) null() { r.buf = append(r.buf, 0xff, 0xff, 0xff, 0xff) }

func (r *copyRows) number(v int64) {
	r.buf = append(r.buf, 0, 0, 0, 8)
	r.buf = binary.BigEndian.AppendUint64(r.buf, uint64(v))
}

// numberOrNull writes 0 as NULL.
func (r *copyRows) numberOrNull(v int64) {
	if v == 0 {
		r.null()
		return
	}
	r.number(v)
}

// instant writes 0 as NULL.
func (r *copyRows) instant(at wire.Instant) {
	if at == 0 {
		r.null()
		return
	}
	r.number(int64(at - postgresEpoch))
}

func (r *copyRows) text(s string) {
	r.buf = binary.BigEndian.AppendUint32(r.buf, uint32(len(s)))
	r.buf = append(r.buf, s...)
}

// textOrNull writes the empty text as NULL.
func (r *copyRows) textOrNull(s string) {
	if s == "" {
		r.null()
		return
	}
	r.text(s)
}

// send copies the rows into table(columns). Nothing is sent if there are none.
func (r *copyRows) send(ctx context.Context, tx pgx.Tx, schema, table, columns string) error {
	if r.count == 0 {
		return nil
	}
	r.buf = append(r.buf, 0xff, 0xff) // no more rows
	sql := in(schema, "COPY scrip."+table) + " (" + columns + ") FROM STDIN (FORMAT binary)"
	if _, err := tx.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(r.buf), sql); err != nil {
		return fmt.Errorf("copying %d rows into %s: %w", r.count, table, err)
	}
	return nil
}
