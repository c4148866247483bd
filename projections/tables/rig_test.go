package tables

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/projections/schema"
)

func TestMain(m *testing.M) { os.Exit(projtest.Main(m)) }

// open gives a database of its own with the read tables.
func open(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool := projtest.Pool(t, projtest.URL(t))
	if _, err := schema.Ensure(context.Background(), pool, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	return pool
}

// begin makes young segments, as package segments does, which imports this one.
func begin(t testing.TB, pool *pgxpool.Pool, young int32) {
	t.Helper()
	for number := int32(-1); number >= -young; number-- {
		_, err := pool.Exec(context.Background(), fmt.Sprintf(`
			CREATE TABLE scrip_1.%[1]s (LIKE scrip_1.coupon_claim INCLUDING CONSTRAINTS, CONSTRAINT %[1]s_key PRIMARY KEY (campaign, n));
			ALTER TABLE scrip_1.coupon_claim ATTACH PARTITION scrip_1.%[1]s FOR VALUES IN (%[2]d);
			INSERT INTO scrip_1.segment (segment) VALUES (%[2]d)`, SegmentTable(number), number))
		if err != nil {
			t.Fatalf("beginning a segment: %v", err)
		}
	}
}

// keep changes setting tables.keep.
func keep(t testing.TB, pool *pgxpool.Pool, days int64) {
	t.Helper()
	if _, err := pool.Exec(context.Background(), "UPDATE scrip_meta.format SET keep_days = $1", days); err != nil {
		t.Fatal(err)
	}
}

// message is one step of the log.
type message struct {
	at    wire.Instant
	lines []byte
}

// reader cuts a log into batches, as the projector does.
type reader struct {
	retention time.Duration
	young     int32 // segments that claims go to in turn, besides segment 0
	batches   int32
	sequence  uint64
	clock     wire.Instant
	lines     []Line // used again by each batch
}

func (r *reader) batch(messages []message) *Batch {
	b := &Batch{Schema: "scrip_1", Lane: 0, From: r.clock, Retention: r.retention, Lines: r.lines[:0]}
	b.Segment = -(r.batches % (r.young + 1))
	r.batches++
	for _, m := range messages {
		r.sequence++
		for n, raw := range bytes.Split(bytes.TrimRight(m.lines, "\n"), []byte{'\n'}) {
			if len(raw) > 0 {
				b.Lines = append(b.Lines, Line{})
				b.Lines[len(b.Lines)-1].Read(r.sequence, uint32(n)+1, raw, m.at)
			}
		}
		b.To = m.at
	}
	r.clock, r.lines = b.To, b.Lines
	return b
}

func commit(t testing.TB, pool Beginner, b *Batch) []Parked {
	t.Helper()
	parked, err := tryCommit(pool, b, Apply)
	if err != nil {
		t.Fatalf("applying: %v", err)
	}
	return parked
}

// minute is a time of the test's log.
func minute(n int) wire.Instant {
	return wire.At(time.Date(2026, 1, 1, 0, n, 0, 0, time.UTC))
}

var minutes = regexp.MustCompile(`@\d+`)

// stamped replaces @n by the n-th minute of 2026.
func stamped(s string) string {
	return minutes.ReplaceAllStringFunc(s, func(m string) string {
		n, _ := strconv.Atoi(m[1:])
		return minute(n).String()
	})
}

// script makes one message per line of text; lines joined by " + " are one message.
func script(text string) []message {
	var log []message
	for _, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		raw := []byte(strings.ReplaceAll(stamped(line), " + ", "\n") + "\n")
		var e wire.Event
		m := message{at: minute(0), lines: raw}
		if first, _, _ := bytes.Cut(raw, []byte{'\n'}); wire.ParseEvent(first, &e) == nil && e.At > 0 {
			m.at = e.At
		}
		log = append(log, m)
	}
	return log
}

// rows shows what a query gives, a line per row, fields separated by blanks, times as minutes, NULL as -.
func rows(t testing.TB, pool *pgxpool.Pool, query string) string {
	t.Helper()
	result, err := pool.Query(context.Background(), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer result.Close()
	var out strings.Builder
	for result.Next() {
		values, err := result.Values()
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		for i, v := range values {
			if i > 0 {
				out.WriteByte(' ')
			}
			switch v := v.(type) {
			case nil:
				out.WriteByte('-')
			case time.Time:
				fmt.Fprintf(&out, "@%d", int(v.Sub(minute(0).Time()).Minutes()))
			default:
				fmt.Fprint(&out, v)
			}
		}
		out.WriteByte('\n')
	}
	if err := result.Err(); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// truncate empties all tables.
func truncate(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(context.Background(), `TRUNCATE scrip_1.campaign, scrip_1.coupon_claim, scrip_1.coupon_state, scrip_1.redemption_row, scrip_1.expiry_own,
		scrip_1.reminder, scrip_1.day_stats, scrip_1.refusal_stats, scrip_1.dead_letter, scrip_1.coupon_event, scrip_1.expiry_event, scrip_1.allotment, scrip_1.campaign_event, scrip_1.removal, scrip_1.leaving`)
	if err != nil {
		t.Fatalf("truncate: %v", err)
	}
}
