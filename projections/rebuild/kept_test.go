package rebuild

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/room"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// A rebuild whose exchange is prevented keeps what it filled, and the next one goes on with it.
func TestFilledTablesAreKept(t *testing.T) {
	r := filled(t)
	end := r.reading("scrip.coupon")
	s := r.open(Options{})
	_, err := s.Rebuild(t.Context())
	if errors.Is(err, ErrRefused) || !schema.Blocked(err) || !strings.Contains(err.Error(), "the filled tables are kept (schema scrip_2): the next `scrip rebuild` goes on with them") {
		t.Errorf("beside a reader that does not end: %v", err)
	}
	s.Close()
	if got := r.verify(VerifyOptions{}); !got.Equal() {
		t.Errorf("verified: %+v", got.Differences)
	}
	streamtest.Equal(t, "schemas after another session", r.schemas(), "scrip and scrip_2")
	end()
	r.Claim(0, 3)
	r.Claim(1, 1)
	r.synced()
	got := r.rebuild(Options{})
	if got.Events != 4 || got.NotCompared != "" {
		t.Errorf("the next rebuild, of four events more: %+v", got)
	}
	for _, table := range got.Tables {
		if !table.Equal {
			t.Errorf("the next rebuild: %+v", table)
		}
	}
	streamtest.Equal(t, "schemas", r.schemas(), "scrip previous")
	r.Claim(0, 1)
	r.Claim(1, 1)
	r.synced()
	right := r.folded()
	streamtest.Equal(t, "tables are not the fold of the log", r.digest(), right)

	// What cannot be filled on is dropped, and the next rebuild begins from the start.
	for name, spoil := range map[string]string{
		"lost by the log":      "UPDATE kept.checkpoint SET digest = repeat('0', 32)",
		"without a checkpoint": "DELETE FROM kept.checkpoint WHERE lane = 1",
	} {
		s := r.open(Options{Hook: func(p Phase) error {
			if p == Comparing {
				return context.Canceled // as by a server that is stopped
			}
			return nil
		}})
		first, err := s.Rebuild(t.Context())
		s.Close()
		now, reading := schema.Current(t.Context(), r.Pool)
		if reading != nil || now.Kept == "" || !strings.Contains(err.Error(), "are kept") {
			t.Fatalf("%s: kept %q, %v, %v, %+v", name, now.Kept, err, reading, first)
		}
		r.exec(strings.ReplaceAll(spoil, "kept.", now.Kept+"."))
		if got := r.rebuild(Options{}); got.Events < 50 {
			t.Errorf("%s: %d events were applied", name, got.Events)
		}
		streamtest.Equal(t, name+": digest", r.digest(), right)
		streamtest.Equal(t, name+": schemas", r.schemas(), "scrip previous")
	}
}

// Filled tables are kept unless the failure may be theirs, or they take the room that is missing. Kept ones are dropped
// on demand.
func TestWhatIsKept(t *testing.T) {
	r := filled(t)
	for code, kept := range map[string]bool{"40P01": true, "55P03": true, "57P01": true, "08006": true, "53300": true, "53100": false, "23514": false, "XX001": false} {
		if got := blameless(&pgconn.PgError{Code: code}); got != kept {
			t.Errorf("after an error of PostgreSQL with SQLSTATE %s: %t", code, got)
		}
	}
	for failure, kept := range map[error]bool{room.ErrFull: false, context.Canceled: true} {
		s := r.open(Options{Hook: func(p Phase) error {
			if p == Comparing {
				return failure
			}
			return nil
		}})
		_, err := s.Rebuild(t.Context())
		if !errors.Is(err, failure) || strings.Contains(err.Error(), "are kept") != kept {
			t.Errorf("%v: %v", failure, err)
		}
		streamtest.Equal(t, failure.Error()+": schemas", r.schemas(), map[bool]string{true: "scrip and scrip_2", false: "scrip"}[kept])
		if dropped, err := s.DropPrevious(t.Context()); err != nil || dropped != kept {
			t.Errorf("%v: dropped %t, %v", failure, dropped, err)
		}
		streamtest.Equal(t, failure.Error()+": schemas after it", r.schemas(), "scrip")
		s.Close()
	}
}
