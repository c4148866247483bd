package projector

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/testsignal"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// An outage is logged once, at its beginning and at the end for the last lane, with how long it took.
func TestOutageIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out streamtest.Buffer
		o := &outage{what: "PostgreSQL", log: slog.New(slog.NewTextHandler(&out, nil)), clock: wall.Machine, noticed: &testsignal.Signal[string]{}}
		logged := func(away, back int) {
			t.Helper()
			text := out.String()
			if a, b := strings.Count(text, "is unavailable"), strings.Count(text, "is available"); a != away || b != back {
				t.Fatalf("logged %d and %d times, want %d and %d:\n%s", a, b, away, back, text)
			}
		}
		ctx, zero, one := t.Context(), &follower{}, &follower{number: 1}
		o.end(ctx, zero) // there is none
		logged(0, 0)
		for range 3 {
			o.start(ctx, zero, errors.New("refused"))
			o.start(ctx, one, errors.New("refused"))
			<-time.After(time.Second)
		}
		logged(1, 0)
		o.end(ctx, one)
		o.end(ctx, one)
		logged(1, 0)
		<-time.After(time.Hour)
		o.end(ctx, zero)
		logged(1, 1)
		if !strings.Contains(out.String(), "unavailable=1h0m3s") {
			t.Errorf("how long it took is not in %s", out.String())
		}
		o.start(ctx, nil, errors.New("refused")) // for the projector as a whole
		o.start(ctx, one, errors.New("refused"))
		o.endAll(ctx)
		logged(2, 2)
	})
}
