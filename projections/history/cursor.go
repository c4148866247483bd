package history

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-4a2410e3/scrip/streams/service"
)

// cursor is where a page ends. Entries are ordered by time, then by place; one event may tell of several coupons and
// reminders of a customer.
type cursor struct {
	at                pgtype.Timestamptz
	lane, place, n, r int64
}

func cursorAt(e *Entry) cursor {
	return cursor{
		at:   pgtype.Timestamptz{Time: e.At, Valid: true},
		lane: int64(e.Lane), place: int64(e.Sequence)*placeLines + int64(e.Line), n: int64(e.N), r: e.r,
	}
}

// String is the cursor as callers keep it: <µs>.<lane>.<place>.<n>.<r>.
func (c cursor) String() string {
	return fmt.Sprintf("%d.%d.%d.%d.%d", c.at.Time.UnixMicro(), c.lane, c.place, c.n, c.r)
}

// parseCursor reads one; "" is behind the newest entry.
func parseCursor(s string) (c cursor, err error) {
	if s == "" {
		return cursor{at: pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}}, nil
	}
	parts := strings.Split(s, ".")
	var numbers [5]int64
	if len(parts) != len(numbers) {
		return c, fmt.Errorf("%q: %w", s, service.ErrBadCursor)
	}
	for i := range numbers {
		n, err := strconv.ParseInt(parts[i], 10, 64)
		if err != nil || n < 0 || i == 0 && n > latest {
			return c, fmt.Errorf("%q: %w", s, service.ErrBadCursor)
		}
		numbers[i] = n
	}
	return cursor{
		at:   pgtype.Timestamptz{Time: time.UnixMicro(numbers[0]).UTC(), Valid: true},
		lane: numbers[1], place: numbers[2], n: numbers[3], r: numbers[4],
	}, nil
}

// latest is the year 9999 in microseconds, which PostgreSQL can hold.
const latest = 253_402_300_799_999_999
