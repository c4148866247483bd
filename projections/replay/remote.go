package replay

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Remote is where a replay reads events over HTTP instead of from the log, as GET /v1/events has them, with a key: without its
// rights to codes and customers, these are masked. Run then takes no JetStream, and the log RemoteLog.
type Remote struct {
	URL, Key string // http://HOST:PORT
	Client   *http.Client
}

// RemoteLog has one position for all lanes, of lane 0: its digest is the cursor after a batch, its sequence a count.
var RemoteLog = topology.Log{UUID: "http", Lanes: 1}

// remote reads all batches after a position, and with Follow those that follow.
func (r *run) remote(ctx context.Context, positions map[int]eventlog.Position) error {
	at := positions[0]
	if len(positions) > 0 && at.Log != r.log.UUID {
		return invalid("key-file", "the output was started from the log itself, without a key; give another one, or --reset to start again")
	}
	if !r.opts.Follow {
		if err := r.receive(ctx, &at); err != nil {
			return err
		}
		return r.sink.Flush(ctx)
	}
	r.failed = nil
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.flush(ctx) })
	g.Go(func() error {
		for {
			err := r.receive(ctx, &at)
			if !isUnavailable(err) || r.alone(func() error { return nil }) != nil {
				return err // of the sink, or none that goes by
			}
			r.opts.Logger.WarnContext(ctx, "the server is unavailable; retrying", "err", err)
			if err := natsx.Pause(ctx, reconnectPause); err != nil {
				return err
			}
		}
	})
	return g.Wait()
}

// reconnectPause is between two streams of events.
const reconnectPause = 500 * time.Millisecond

// receive reads one stream of events. at is the position after what is written.
func (r *run) receive(ctx context.Context, at *eventlog.Position) error {
	f, query := &r.opts.Filter, url.Values{}
	query.Set("after", at.Digest)
	if r.opts.Follow {
		query.Set("follow", "1")
	}
	if f.Customer == "" { // else what remains is found by what is left out
		var types []string
		for _, t := range f.Types {
			types = append(types, t.String())
		}
		query.Set("types", strings.Join(types, ","))
		query.Set("campaign", strings.Join(f.Campaigns, ","))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.opts.Remote.URL+"/v1/events?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+r.opts.Remote.Key)
	answer, err := r.opts.Remote.Client.Do(req)
	if err != nil {
		return &unavailableError{err}
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		var problem struct{ Detail string }
		_ = json.NewDecoder(io.LimitReader(answer.Body, 16<<10)).Decode(&problem)
		err := fmt.Errorf("the server answers %s: %s", answer.Status, problem.Detail)
		if answer.StatusCode >= 500 || answer.StatusCode == http.StatusTooManyRequests {
			err = &unavailableError{err}
		}
		return err
	}
	matcher := newMatcher(f)
	var b Batch
	for lines := bufio.NewReader(answer.Body); ; {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 && !r.opts.Follow {
			return nil
		}
		if err != nil {
			return &unavailableError{fmt.Errorf("the stream of events was cut off: %w", err)}
		}
		var head struct {
			Type, Cursor, Reason string
			Position
		}
		if err := json.Unmarshal(line, &head); err != nil {
			return fmt.Errorf("the server sent a line that is none of events: %w", err)
		}
		switch {
		case head.Cursor != "" && head.Type == "end":
			return &unavailableError{errors.New(head.Reason)}
		case head.Cursor != "" && head.Type == "cursor":
			b.To = eventlog.Position{Log: r.log.UUID, Sequence: at.Sequence + 1, Digest: head.Cursor}
			if err := r.alone(func() error { return r.sink.Write(ctx, &b) }); err != nil {
				return err
			}
			r.done.Events += uint64(len(b.Events))
			r.done.Messages++
			r.opts.Progress(r.done)
			*at, b = b.To, Batch{}
			continue
		}
		e := Event{Position: head.Position, Raw: unpositioned(line)}
		if b.Lane, b.Last = e.Lane, e.Position.Sequence; b.First == 0 {
			b.First = b.Last
		}
		if err := wire.ParseEvent(e.Raw, &e.Event); err != nil || e.At <= 0 {
			r.done.Unreadable++
		} else if b.Clock = e.At; matcher.match(&e.Event) && f.reads(e.Lane) && b.Last >= f.From[e.Lane] && (f.To[e.Lane] == 0 || b.Last <= f.To[e.Lane]) {
			if f.Mask != nil {
				f.Mask.event(&e)
			}
			b.Events = append(b.Events, e)
		}
	}
}

// unpositioned is the line as AppendPositioned got it.
func unpositioned(line []byte) []byte {
	for range 3 {
		_, line, _ = bytes.Cut(line, []byte(","))
	}
	for _, name := range []string{"sequence", "line"} { // in texts there is a backslash before the second quote
		line = bytes.Replace(line, []byte(`"command_`+name+`":`), []byte(`"`+name+`":`), 1)
	}
	return append([]byte("{"), bytes.TrimSpace(line)...)
}
