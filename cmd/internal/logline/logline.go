package logline

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// capacity is how many bytes of lines may wait for the writer, some 5,000 lines: the lines of a second at debug level.
// There are two buffers, one that is filled and one that is written.
const capacity = 1 << 20

// Options are the form of lines.
type Options struct {
	JSON  bool // else text
	Level slog.Level
}

// Log is the log of a process. It is an io.Writer of lines, which never blocks and never fails.
type Log struct {
	to      io.Writer
	opts    Options
	logger  *slog.Logger
	rates   rates
	more    chan struct{} // the queue has changed
	closing chan struct{}
	closed  sync.Once
	ended   chan struct{} // closed when the writer has ended
	dropped atomic.Uint64

	mu     sync.Mutex // guards the fields below
	queue  []byte     // lines that wait
	missed uint64     // lines that found no room since the writer took the queue
}

// Open returns a log that writes to a writer, which no one else writes to until Close.
func Open(to io.Writer, opts Options) *Log {
	l := &Log{to: to, opts: opts, more: make(chan struct{}, 1), closing: make(chan struct{}), ended: make(chan struct{})}
	l.rates.by = map[string]*kind{}
	l.logger = slog.New(&rated{rates: &l.rates, next: opts.handler(l)})
	go l.run()
	return l
}

// handler makes text or JSON of records.
func (o Options) handler(to io.Writer) slog.Handler {
	opts := &slog.HandlerOptions{Level: o.Level, ReplaceAttr: shorten}
	if o.JSON {
		return slog.NewJSONHandler(to, opts)
	}
	return slog.NewTextHandler(to, opts)
}

// Logger is the log as a logger.
func (l *Log) Logger() *slog.Logger { return l.logger }

// Dropped is how many lines were lost: they found no room in the queue, or could not be written.
func (l *Log) Dropped() uint64 { return l.dropped.Load() }

// Write puts one or more whole lines into the queue, all or none.
func (l *Log) Write(lines []byte) (int, error) {
	l.mu.Lock()
	if len(l.queue)+len(lines) > capacity {
		n := count(lines)
		l.missed += n
		l.dropped.Add(n)
	} else {
		l.queue = append(l.queue, lines...)
	}
	l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default: // the writer looks again in any case
	}
	return len(lines), nil
}

// Close writes the lines that wait for their rate and what is in the queue, and ends the writer. It gives up after the
// limit: nobody reads then. It does not wait for a reader that is gone. Later lines are dropped.
func (l *Log) Close(limit time.Duration) {
	l.rates.flush()
	l.closed.Do(func() { close(l.closing) })
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-l.ended:
	case <-late.C:
	}
}

// run is the writer.
func (l *Log) run() {
	defer close(l.ended)
	var spare []byte
	w := writer{l: l}
	for last := false; !last; {
		select {
		case <-l.more:
		case <-l.closing:
			last = true
		}
		for more := true; more; {
			l.mu.Lock()
			batch, missed := l.queue, l.missed
			l.queue, l.missed = spare[:0], 0
			l.mu.Unlock()
			written := w.write(batch)
			w.lost += missed // they came after the batch
			spare = batch
			more = written && (len(batch) > 0 || missed > 0)
		}
	}
}

// writer is the state of the one goroutine that writes.
type writer struct {
	l    *Log
	lost uint64 // lines that were dropped and not reported yet
	rest []byte // of a line that was written in part: it is completed first
}

// write writes a batch of lines, after a report of lines that were lost. It returns false if that failed: what was not
// written is lost.
func (w *writer) write(batch []byte) bool {
	if len(w.rest) > 0 {
		n, err := w.l.to.Write(w.rest)
		w.rest = w.rest[:copy(w.rest, w.rest[n:])]
		if err != nil {
			w.lose(batch)
			return false
		}
	}
	if w.lost > 0 {
		left, ok := w.put(report(w.l.opts, w.lost))
		if len(left) == 0 {
			w.lost = 0
		}
		if !ok {
			w.lose(batch)
			return false
		}
	}
	if len(batch) == 0 {
		return true
	}
	left, ok := w.put(batch)
	w.lose(left)
	return ok
}

// put writes whole lines. If that fails, left are those of which nothing was written.
func (w *writer) put(lines []byte) (left []byte, ok bool) {
	n, err := w.l.to.Write(lines)
	if err == nil {
		return nil, true
	}
	left = lines[n:]
	if n > 0 && lines[n-1] != '\n' {
		end := bytes.IndexByte(left, '\n') + 1
		w.rest, left = append(w.rest, left[:end]...), left[end:]
	}
	return left, false
}

// lose counts lines that are not written.
func (w *writer) lose(lines []byte) {
	n := count(lines)
	w.lost += n
	w.l.dropped.Add(n)
}

func count(lines []byte) uint64 { return uint64(bytes.Count(lines, []byte{'\n'})) } //nolint:gosec // a count

// report is the line about lines that were lost.
func report(form Options, n uint64) []byte {
	var line bytes.Buffer
	r := slog.NewRecord(time.Now(), slog.LevelWarn, "lines of this log were dropped: nobody read them, or they could not be written", 0)
	r.AddAttrs(slog.Uint64("lines", n))
	form.Level = slog.LevelDebug                            // it is written at any level
	_ = form.handler(&line).Handle(context.Background(), r) // into memory
	return line.Bytes()
}
