package api

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/projections/replay"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	eventStream = "text/event-stream"
	// heartbeat is the longest silence of a stream that follows, so that proxies keep it and a client notices a dead one.
	heartbeat = 15 * time.Second
	// cursorEvery is how often a cursor is sent for events that the filter leaves out.
	cursorEvery = time.Second
)

// eventSink writes a replay as the answer to a request.
type eventSink struct {
	w      http.ResponseWriter
	stream web.Stream
	format func(at map[int]eventlog.Position) (cursor string)
	at     map[int]eventlog.Position // the last message of each lane that was written
	sse    bool
	buf    []byte
	moved  bool      // at has changed since the last cursor
	wrote  time.Time // when the last cursor was sent
	failed error
}

func newEventSink(w http.ResponseWriter, format func(map[int]eventlog.Position) string, at map[int]eventlog.Position, sse bool) *eventSink {
	s := &eventSink{w: w, stream: web.NewStream(w), format: format, at: at, sse: sse}
	h := w.Header()
	h.Set("Content-Type", ndjson)
	if sse {
		h.Set("Content-Type", eventStream)
	}
	h.Set("X-Accel-Buffering", "no") // nginx would hold lines back
	return s
}

// Begin implements replay.Sink: the answer starts.
func (s *eventSink) Begin(context.Context, topology.Log, *replay.Filter) (map[int]eventlog.Position, error) {
	s.w.WriteHeader(http.StatusOK)
	return maps.Clone(s.at), s.send()
}

// Write implements replay.Sink. While a stream catches up it is all that is called: a batch without selected events must not be
// silent, or a proxy would cut off a reader of rare events, who would start again at the old cursor.
func (s *eventSink) Write(ctx context.Context, b *replay.Batch) error {
	s.at[b.Lane] = b.To
	s.moved = true
	if len(b.Events) == 0 {
		return s.Flush(ctx)
	}
	s.buf = s.buf[:0]
	for i := range b.Events {
		e := &b.Events[i]
		if s.sse {
			if i == len(b.Events)-1 { // with it the client has the whole batch
				s.buf = append(append(append(s.buf, "id: "...), s.cursor()...), '\n')
			}
			s.buf = append(append(append(s.buf, "event: "...), e.Type.String()...), "\ndata: "...)
		}
		s.buf = append(e.AppendPositioned(s.buf), '\n')
		if s.sse {
			s.buf = append(s.buf, '\n')
		}
	}
	if !s.sse {
		s.buf = append(s.buf, s.cursorLine()...)
	}
	s.moved, s.wrote = false, time.Now()
	return s.send()
}

// Flush implements replay.Sink. It is called once a second while nothing arrives, and at the end.
func (s *eventSink) Flush(context.Context) error {
	since := time.Since(s.wrote)
	if !(s.moved && since >= cursorEvery) && since < heartbeat {
		return nil
	}
	return s.progress()
}

// progress sends a cursor alone.
func (s *eventSink) progress() error {
	s.moved, s.wrote = false, time.Now()
	s.buf = s.buf[:0]
	if s.sse {
		s.buf = append(append(append(s.buf, ": \nid: "...), s.cursor()...), "\n\n"...)
	} else {
		s.buf = append(s.buf, s.cursorLine()...)
	}
	return s.send()
}

// End implements replay.Sink. A stream that does not follow ends with a cursor.
func (s *eventSink) End(_ context.Context, cause error) error {
	if cause != nil || s.failed != nil || !s.moved {
		return nil
	}
	return s.progress()
}

// end writes why the stream ends before it should.
func (s *eventSink) end(reason string) {
	if s.failed != nil {
		return
	}
	text, err := json.Marshal(map[string]string{"type": "end", "cursor": s.cursor(), "reason": reason})
	if err != nil {
		return
	}
	s.buf = s.buf[:0]
	if s.sse {
		s.buf = append(s.buf, "event: end\ndata: "...)
	}
	s.buf = append(append(s.buf, text...), '\n')
	if s.sse {
		s.buf = append(s.buf, '\n')
	}
	_ = s.send() // the connection ends in any case
}

func (s *eventSink) cursor() string { return s.format(s.at) }

func (s *eventSink) cursorLine() []byte {
	return append(append([]byte(`{"type":"cursor","cursor":"`), s.cursor()...), "\"}\n"...)
}

// send writes the buffer. A client that does not take it in time is cut off: what waits for it must not grow.
func (s *eventSink) send() error {
	if s.failed != nil {
		return s.failed
	}
	s.stream.Writing(streamWait)
	if _, s.failed = s.w.Write(s.buf); s.failed == nil {
		s.failed = s.stream.Flush()
	}
	return s.failed
}
