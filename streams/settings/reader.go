package settings

import (
	"context"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// readBatch is how many messages of the bucket are taken from its feed at once.
const readBatch = 256

// reader reads the changes in the bucket from the first, in the order of revisions, and then each new one.
type reader struct {
	*eventlog.Feed
	// until is the revision of the newest change at the start. A replica of the bucket that lags may have less for a while,
	// so a reader that has seen fewer has not seen all.
	until uint64
	batch []eventlog.Raw
}

// open starts a reader, within attempt. The error is [jetstream.ErrStreamNotFound] where there is no bucket. The caller
// closes the reader.
func (s *Store) open(ctx context.Context) (*reader, error) {
	ctx, done := context.WithTimeout(ctx, attempt)
	defer done()
	until, err := newest(ctx, s.js)
	if err != nil {
		return nil, err
	}
	feed, err := eventlog.Settings(s.js).OpenFeed(ctx, 0, s.opts.Logger)
	if err != nil {
		return nil, err
	}
	return &reader{Feed: feed, until: until}, nil
}

// take calls f with each change that has arrived since the last call, and does not wait. An error is final for this reader.
func (r *reader) take(f func(Change)) (err error) {
	if r.batch, err = r.TryBatch(readBatch, r.batch[:0]); err != nil {
		return err
	}
	for i := range r.batch {
		if c, ok := parseMessage(&r.batch[i]); ok {
			f(c)
		}
	}
	return nil
}
