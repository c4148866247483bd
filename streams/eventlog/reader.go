package eventlog

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
)

// readBatch is how many messages CatchUp passes to its function at most at once.
const readBatch = 256

// Reader delivers the valid messages of an event or reminder stream, in order. Foreign messages are ignored, counted and
// logged; a gap, a lost tail and a newer format are errors, and stay.
type Reader struct {
	feed    *Feed
	stream  Stream
	log     *slog.Logger
	judge   *Judge
	raw     []Raw // taken from the feed, not yet parsed
	held    []Raw // the message that the reader stopped at, and those taken from the feed after it
	seq     uint64
	foreign atomic.Uint64
	alarmed *atomic.Uint64
	alarms  uint64
	err     error
}

// ReaderOptions for Open.
type ReaderOptions struct {
	// Logger gets the alarm about foreign messages. Defaults to slog.Default.
	Logger *slog.Logger
	// Alarmed is the newest foreign message that the alarm was raised about, for programs that read the same stream again and
	// again: each is reported once. Nil = every reader reports all.
	Alarmed *atomic.Uint64
}

// Open starts reading after a position, which is verified first (ErrLostTail, ErrDiverged, ErrTrimmed). The zero
// Position with the log's UUID reads from the first message. The caller closes the reader.
func (s Stream) Open(ctx context.Context, log string, after Position, opts ReaderOptions) (*Reader, error) {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if err := s.Verify(ctx, log, after); err != nil {
		return nil, err
	}
	judge, err := s.Judge(ctx)
	if err != nil {
		return nil, err
	}
	feed, err := s.OpenFeed(ctx, after.Sequence, opts.Logger)
	if err != nil {
		return nil, err
	}
	if opts.Alarmed == nil {
		opts.Alarmed = new(atomic.Uint64)
	}
	return &Reader{feed: feed, stream: s, judge: judge, log: opts.Logger, alarmed: opts.Alarmed, seq: after.Sequence}, nil
}

// Ready holds a token when TryBatch may return messages or an error.
func (r *Reader) Ready() <-chan struct{} { return r.feed.Ready() }

// TryBatch appends to dst the messages that have arrived, at most max, without waiting. It may append nothing and yet advance
// Sequence, over foreign messages.
func (r *Reader) TryBatch(max int, dst []Message) ([]Message, error) {
	if r.err != nil {
		return dst, r.err
	}
	raw, err := r.take(max)
	if err != nil {
		r.err = err
		return dst, err
	}
	had := len(dst)
	for i := range raw {
		m, err := r.judge.Read(&raw[i])
		switch {
		case errors.Is(err, ErrForeign):
			r.pass(&raw[i], err)
		case err != nil:
			r.err, r.held = err, append(slices.Clone(raw[i:]), r.held...)
			if len(dst) > had {
				err = nil // first the messages before it
				r.feed.token()
			}
			clear(r.raw)
			return dst, err
		default:
			dst = append(dst, m)
		}
		r.seq = raw[i].Sequence
		r.raw[i] = Raw{}
	}
	return dst, nil
}

// take returns the messages that Resume continues with, then those that have arrived.
func (r *Reader) take(max int) (raw []Raw, err error) {
	if n := min(max, len(r.held)); n > 0 {
		r.raw = append(r.raw[:0], r.held[:n]...)
		if r.held = r.held[n:]; len(r.held) == 0 {
			r.held = nil
		}
		r.feed.token() // for the rest of them, or messages that have arrived since
		return r.raw, nil
	}
	r.raw, err = r.feed.TryBatch(max, r.raw[:0])
	return r.raw, err
}

// Resume makes a reader that a StopError ended continue, with the list that AwaitSkip returned. It is called by the goroutine
// that reads; after other errors it does nothing.
func (r *Reader) Resume(skips Skips) {
	var stop *StopError
	if !errors.As(r.err, &stop) {
		return
	}
	r.err = nil
	r.judge.PassOver(skips)
	r.feed.token()
}

// pass counts a message that is ignored, and reports it once.
func (r *Reader) pass(raw *Raw, why error) {
	r.foreign.Add(1)
	if raw.Sequence <= r.alarmed.Load() {
		return
	}
	r.alarmed.Store(raw.Sequence)
	if errors.Is(why, ErrSkipped) {
		r.log.Warn("message in the skip list ignored", "stream", r.stream.name, "sequence", raw.Sequence)
		return
	}
	r.alarms++
	r.log.Error("foreign message in the log ignored; find out which program may publish there", "stream", r.stream.name, "sequence", raw.Sequence, "err", why)
}

// CatchUp passes to f, in batches, every valid message up to the end of the stream at the time of the call, and returns.
// The batch is reused: f must not keep the slice.
func (r *Reader) CatchUp(ctx context.Context, f func([]Message) error) error {
	bounds, err := r.stream.Bounds(ctx)
	if err != nil {
		return err
	}
	var batch []Message
	for r.seq < bounds.Last {
		max := int(min(readBatch, bounds.Last-r.seq))
		if batch, err = r.TryBatch(max, batch[:0]); err != nil {
			return err
		}
		if len(batch) > 0 {
			if err := f(batch); err != nil {
				return err
			}
			continue
		}
		if r.seq >= bounds.Last {
			break
		}
		select {
		case <-r.feed.Ready():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Sequence returns the last sequence read, foreign messages included.
func (r *Reader) Sequence() uint64 { return r.seq }

// Foreign returns how many foreign messages were ignored. Safe for concurrent use.
func (r *Reader) Foreign() uint64 { return r.foreign.Load() }

// Alarms returns how many of them this reader reported.
func (r *Reader) Alarms() uint64 { return r.alarms }

// Lag is described at Feed.Lag.
func (r *Reader) Lag() uint64 { return r.feed.Lag() }

// Close stops reading.
func (r *Reader) Close() { r.feed.Close() }
