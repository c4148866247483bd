// Package pgcopy encodes rows in the binary format of COPY and sends them. pgx's CopyFrom allocates for every value,
// which for a claim would cost more than the rest of the fold.
//
// Owner: the goroutine that made the Rows. A crash loses them; they belong to the caller's transaction.
package pgcopy

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// signature starts the format: no flags, no header extension.
const signature = "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// postgresEpoch is 2000-01-01T00:00:00Z, the zero of PostgreSQL's timestamps.
const postgresEpoch wire.Instant = 946_684_800_000_000

// Rows are encoded rows. The zero value is ready to use.
type Rows struct {
	buf   []byte
	count int
}

// Grow allocates room for that many bytes. Call it before the first row.
func (r *Rows) Grow(bytes int) { r.buf = make([]byte, 0, bytes) }

// Row starts a row of that many fields; as many calls of the methods below must follow.
func (r *Rows) Row(fields int) {
	if len(r.buf) == 0 {
		r.buf = append(r.buf, signature...)
	}
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(fields))
	r.count++
}

// Add adds a row of texts as returned by Clean, numbers, instants, of which 0 is NULL, and nil. The methods for one field are
// faster, for rows of which there are many.
func (r *Rows) Add(fields ...any) {
	r.Row(len(fields))
	for _, v := range fields {
		switch v := v.(type) {
		case nil:
			r.Null()
		case string:
			r.Text(v)
		case int:
			r.Int64(int64(v))
		case int64:
			r.Int64(v)
		case uint32:
			r.Int64(int64(v))
		case uint64:
			r.Int64(int64(v))
		case wire.Instant:
			r.Instant(v)
		default:
			panic(fmt.Sprintf("a field of type %T", v))
		}
	}
}

// Null writes NULL.
func (r *Rows) Null() { r.buf = append(r.buf, 0xff, 0xff, 0xff, 0xff) }

// Int32 writes an integer.
func (r *Rows) Int32(v int32) {
	r.buf = append(r.buf, 0, 0, 0, 4)
	r.buf = binary.BigEndian.AppendUint32(r.buf, uint32(v))
}

// Int64 writes a bigint.
func (r *Rows) Int64(v int64) {
	r.buf = append(r.buf, 0, 0, 0, 8)
	r.buf = binary.BigEndian.AppendUint64(r.buf, uint64(v))
}

// Int64OrNull writes 0 as NULL.
func (r *Rows) Int64OrNull(v int64) {
	if v == 0 {
		r.Null()
		return
	}
	r.Int64(v)
}

// Instant writes a timestamptz, 0 as NULL.
func (r *Rows) Instant(at wire.Instant) {
	if at == 0 {
		r.Null()
		return
	}
	r.Int64(int64(at - postgresEpoch))
}

// Clean returns s as valid text for PostgreSQL: U+0000 and invalid UTF-8 become U+FFFD.
func Clean(s string) string {
	if strings.IndexByte(s, 0) < 0 && utf8.ValidString(s) {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Text writes a text, which must be as returned by Clean.
func (r *Rows) Text(s string) {
	r.buf = binary.BigEndian.AppendUint32(r.buf, uint32(len(s)))
	r.buf = append(r.buf, s...)
}

// TextOrNull writes the empty text as NULL.
func (r *Rows) TextOrNull(s string) {
	if s == "" {
		r.Null()
		return
	}
	r.Text(s)
}

// JSONB writes a jsonb: its version, 1, and the text.
func (r *Rows) JSONB(text []byte) {
	r.buf = binary.BigEndian.AppendUint32(r.buf, uint32(len(text))+1)
	r.buf = append(append(r.buf, 1), text...)
}

// Send copies the rows into columns of a table; both are SQL, quoted where necessary. It sends nothing if there are no
// rows. Errors are those of PostgreSQL.
func (r *Rows) Send(ctx context.Context, tx pgx.Tx, table, columns string) error {
	if r.count == 0 {
		return nil
	}
	r.buf = append(r.buf, 0xff, 0xff) // no more rows
	if _, err := tx.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(r.buf), "COPY "+table+" ("+columns+") FROM STDIN (FORMAT binary)"); err != nil {
		return fmt.Errorf("copying %d rows into %s: %w", r.count, table, err)
	}
	return nil
}
