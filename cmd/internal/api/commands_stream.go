package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

const (
	// streamHeader makes POST /v1/commands a stream in both directions.
	streamHeader = "Scrip-Stream"
	// streamedLines bounds the lines of one that have no outcome yet or wait to be written. The reader of a stream stops meanwhile.
	streamedLines = wire.MaxMessageLines
	// streamWrite is how many bytes of outcomes are written at once at least, while there are more.
	streamWrite = 32 << 10
)

// streamCommands sends lines as they arrive, and answers with outcomes as they come, in the order of the lines.
//
//	body ──> reader ── line ──> lane
//	            └─> entries, in order ──> writer ── waits for each outcome ──> answer
//
// The handler's goroutine writes; the reader is another, which ends before the handler does. The stream ends with the body,
// when the client has gone or has sent nothing for web.IdleWait, when the key is revoked, and when the server stops. Lines that
// were sent have their effect in any case: a client that has no outcome for a line sends it again with its id.
func (a *API) streamCommands(w http.ResponseWriter, req *http.Request) {
	p := principal(req.Context())
	ctx, end := a.session(w, req, a.slots.commands)
	if end == nil {
		return
	}
	defer end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream := web.NewStream(w)
	if err := stream.Duplex(); err != nil && req.ProtoMajor < 2 {
		a.Logger.Debug("a stream of commands answers after its body was read", "err", err)
	}
	defer context.AfterFunc(ctx, func() { stream.Reading(0) })() // ends a read in progress
	go func() {
		select {
		case <-a.stopped:
			cancel(errStopping)
		case <-ctx.Done():
		}
	}()

	w.Header().Set("Content-Type", ndjson)
	w.WriteHeader(http.StatusOK)
	s := &commandStream{w: w, stream: stream, cancel: cancel, entries: make(chan *bulkEntry, streamedLines)}
	s.flush() // a client may wait for the header before it sends a line
	b := &bulk{api: a, principal: p, from: req.RemoteAddr}
	go func() {
		defer close(s.entries)
		s.read(ctx, b, req.Body)
	}()
	s.write()
}

// commandStream is one stream.
type commandStream struct {
	w       http.ResponseWriter
	stream  web.Stream
	cancel  context.CancelCauseFunc
	entries chan *bulkEntry
	out     []byte
	gone    bool // the client takes no more
}

// read sends the lines of the body.
func (s *commandStream) read(ctx context.Context, b *bulk, body io.Reader) {
	lines := bufio.NewScanner(waiting{body, s.stream, ctx})
	lines.Buffer(make([]byte, 0, 4<<10), wire.MaxLine+len("\r\n"))
	for ctx.Err() == nil && lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		line = bytes.Clone(line) // the scanner uses its buffer again
		if b.principal.Campaigns != nil {
			b.lookUp(ctx, [][]byte{line})
		}
		e := &bulkEntry{of: b, ready: make(chan struct{})}
		b.send(ctx, e, line)
		s.entries <- e // the writer takes all of them
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		e := &bulkEntry{of: b, ready: make(chan struct{})}
		e.refuse(wire.Invalid, fmt.Sprintf("a line has at most %d bytes; the stream ends", wire.MaxLine))
		s.entries <- e
	}
	if lines.Err() != nil {
		s.stream.Reading(0) // nobody waits for the rest of the body
	}
}

// write writes outcomes until the reader has ended. It takes all entries, also when the client has gone.
func (s *commandStream) write() {
	for e := range s.entries {
		select {
		case <-e.ready:
		default:
			s.flush()
			<-e.ready // the batcher answers by the deadline
		}
		s.out = append(append(s.out, e.outcome...), '\n')
		if len(s.entries) == 0 || len(s.out) >= streamWrite {
			s.flush()
		}
	}
}

// flush sends what there is to send.
func (s *commandStream) flush() {
	if !s.gone {
		s.stream.Writing(web.WriteWait)
		_, err := s.w.Write(s.out)
		if err = errors.Join(err, s.stream.Flush()); err != nil {
			s.gone = true
			s.cancel(err)
		}
	}
	s.out = s.out[:0]
}

// waiting reads a body, whose next part may take web.IdleWait, until ctx ends.
type waiting struct {
	io.Reader
	stream web.Stream
	ctx    context.Context
}

func (r waiting) Read(b []byte) (int, error) {
	r.stream.Reading(web.IdleWait)
	if err := r.ctx.Err(); err != nil { // later, the deadline that its end sets ends the read
		return 0, err
	}
	return r.Reader.Read(b)
}
