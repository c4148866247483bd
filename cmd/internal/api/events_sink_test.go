package api

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-4a2410e3/scrip/projections/replay"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestAStreamThatCatchesUpIsNotSilent: batches without selected events send a cursor each second, from which a client that was
// cut off continues after them.
func TestAStreamThatCatchesUpIsNotSilent(t *testing.T) {
	sequences := func(at map[int]eventlog.Position) string { return fmt.Sprint("lane 1 at ", at[1].Sequence) }
	for _, sse := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := httptest.NewRecorder()
			s := newEventSink(w, sequences, map[int]eventlog.Position{}, sse)
			if _, err := s.Begin(context.Background(), testLog, nil); err != nil {
				t.Fatal(err)
			}
			var last eventlog.Position
			write := func(n int, then time.Duration) {
				last = eventlog.Position{Log: testLog.UUID, Lane: 1, Sequence: uint64(n + 1), Digest: strings.Repeat("a1", 16)}
				streamtest.Must(t, s.Write(context.Background(), &replay.Batch{Lane: 1, To: last}))
				time.Sleep(then)
			}
			for n := range 40 { // one batch each quarter of a second
				write(n, cursorEvery/4)
			}
			time.Sleep(cursorEvery)
			write(40, 0)
			sent := w.Body.String()
			cursors := strings.Count(sent, `"type":"cursor"`) + strings.Count(sent, "id: ")
			if want := sequences(map[int]eventlog.Position{1: last}); cursors != 11 || !strings.Contains(sent, want) {
				t.Errorf("sse %t: %d cursors, want 11, the last one %s: %s", sse, cursors, want, sent)
			}
		})
	}
}
