package api

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// A cursor of events is the last message of each lane that the client has, in base64url:
//
//	1 | SHA-256 of the log's UUID: 4 bytes | lanes: uvarint | per lane: sequence: uvarint | the first 4 bytes of its digest, if sequence > 0
//
// The digests show that the log is still the one that the client read: after a restore a lane may have other messages at the
// same sequences.
const (
	cursorForm  = 1
	cursorBytes = 4
)

// eventCursor is a parsed cursor, by lane.
type eventCursor []struct {
	sequence uint64
	digest   [cursorBytes]byte
}

func logMark(log topology.Log) [cursorBytes]byte {
	sum := sha256.Sum256([]byte(log.UUID))
	return [cursorBytes]byte(sum[:cursorBytes])
}

// formatEventCursor writes a cursor.
func formatEventCursor(log topology.Log, at map[int]eventlog.Position) string {
	mark := logMark(log)
	raw := append([]byte{cursorForm}, mark[:]...)
	raw = binary.AppendUvarint(raw, uint64(log.Lanes))
	for lane := range log.Lanes {
		pos := at[lane]
		if raw = binary.AppendUvarint(raw, pos.Sequence); pos.Sequence == 0 {
			continue
		}
		digest := make([]byte, cursorBytes)
		_, _ = hex.Decode(digest, []byte(pos.Digest[:2*cursorBytes])) // digests are hex
		raw = append(raw, digest...)
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

var errCursor = errors.New("must be a cursor of this stream of events, or now")

// parseEventCursor reads a cursor of a log.
func parseEventCursor(s string, log topology.Log) (eventCursor, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(raw) < 1+cursorBytes || raw[0] != cursorForm {
		return nil, errCursor
	}
	if [cursorBytes]byte(raw[1:]) != logMark(log) {
		return nil, errors.New("the cursor is of another log; start again without it")
	}
	raw = raw[1+cursorBytes:]
	lanes, n := binary.Uvarint(raw)
	if n <= 0 || lanes != uint64(log.Lanes) {
		return nil, errCursor
	}
	raw = raw[n:]
	c := make(eventCursor, lanes)
	for i := range c {
		if c[i].sequence, n = binary.Uvarint(raw); n <= 0 {
			return nil, errCursor
		}
		if raw = raw[n:]; c[i].sequence == 0 {
			continue
		}
		if len(raw) < cursorBytes {
			return nil, errCursor
		}
		raw = raw[copy(c[i].digest[:], raw):]
	}
	if len(raw) > 0 {
		return nil, errCursor
	}
	return c, nil
}

// laneReads bounds the lanes that one request reads at once.
const laneReads = 8

// verified returns the positions of a cursor, after comparing it with the log.
func (a *API) verified(ctx context.Context, c eventCursor) (map[int]eventlog.Position, error) {
	return a.eachLane(ctx, func(ctx context.Context, stream eventlog.Stream, lane int) (eventlog.Position, error) {
		pos := eventlog.Position{Log: a.Log.UUID, Lane: lane, Sequence: c[lane].sequence}
		if pos.Sequence == 0 {
			return pos, nil
		}
		raw, err := stream.Get(ctx, pos.Sequence)
		if err == nil {
			if pos.Digest = eventlog.Digest(raw.Header, raw.Data); pos.Digest[:2*cursorBytes] != hex.EncodeToString(c[lane].digest[:]) {
				err = eventlog.ErrDiverged
			}
		}
		return pos, err
	})
}

// ends returns the last message of each lane.
func (a *API) ends(ctx context.Context) (map[int]eventlog.Position, error) {
	return a.eachLane(ctx, func(ctx context.Context, stream eventlog.Stream, lane int) (eventlog.Position, error) {
		pos := eventlog.Position{Log: a.Log.UUID, Lane: lane}
		bounds, err := stream.Bounds(ctx)
		if err != nil || bounds.Last == 0 {
			return pos, err
		}
		raw, err := stream.Get(ctx, bounds.Last)
		if err == nil {
			pos.Sequence, pos.Digest = bounds.Last, eventlog.Digest(raw.Header, raw.Data)
		}
		return pos, err
	})
}

func (a *API) eachLane(ctx context.Context, read func(context.Context, eventlog.Stream, int) (eventlog.Position, error)) (map[int]eventlog.Position, error) {
	all := map[int]eventlog.Position{}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(laneReads)
	for lane := range a.Log.Lanes {
		g.Go(func() error {
			pos, err := read(ctx, eventlog.Events(a.JS, lane).In(a.Log), lane)
			mu.Lock()
			defer mu.Unlock()
			all[lane] = pos
			return err
		})
	}
	err := g.Wait()
	switch {
	case fill.IsLost(err) || errors.Is(err, eventlog.ErrHole):
		return nil, web.New(web.Malformed, "after: the log no longer has what the cursor names: it was restored, or lost its tail; start again without it").
			At("query.after", "the log was restored, or lost its tail")
	case err != nil:
		return nil, unavailable("the log cannot be read", err)
	}
	return all, nil
}
