package api_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/projections/replay"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestARemoteReplayOverCuts: a replay with a key that follows, through a proxy that cuts streams off in the middle of lines, has
// each event once, and the same text as a stream that was not cut.
func TestARemoteReplayOverCuts(t *testing.T) {
	r := apitest.Shared(t)
	campaign := r.Campaign(t, map[string]any{"codes": 100})
	r.Key(t, "analyst")
	var cuts atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, in *http.Request) {
		req, err := http.NewRequestWithContext(in.Context(), in.Method, r.URL+in.URL.String(), nil)
		streamtest.Must(t, err)
		req.Header = in.Header
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			panic(http.ErrAbortHandler) // the replay has ended
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
		for left := 300 * (1 + cuts.Load()); ; {
			part := make([]byte, 100)
			n, err := resp.Body.Read(part)
			if left -= int64(n); err != nil || left < 0 && cuts.Add(1) < 4 {
				panic(http.ErrAbortHandler)
			}
			_, _ = w.Write(part[:n])
			_ = http.NewResponseController(w).Flush()
		}
	}))
	defer proxy.Close()
	opts := replay.Options{Filter: replay.Filter{Campaigns: []string{campaign}}, Logger: slog.New(slog.DiscardHandler)}
	cut, whole := opts, opts
	cut.Follow, cut.Remote = true, &replay.Remote{URL: proxy.URL, Key: r.Keys["analyst"], Client: proxy.Client()}
	whole.Remote = &replay.Remote{URL: r.URL, Key: r.Keys["analyst"], Client: http.DefaultClient}
	var got streamtest.Buffer
	stop := streamtest.Background(t, func(ctx context.Context) error {
		_, err := replay.Run(ctx, nil, replay.RemoteLog, replay.Stream(&got, replay.NDJSON), cut)
		return err
	})
	for range 20 {
		r.Claim(t, campaign, apitest.Name("customer"))
	}
	streamtest.Eventually(t, "all events are there", func() bool { return strings.Count(got.String(), "\n") >= 21 && cuts.Load() >= 4 })
	stop()
	var want bytes.Buffer
	_, err := replay.Run(t.Context(), nil, replay.RemoteLog, replay.Stream(&want, replay.NDJSON), whole)
	streamtest.Must(t, err)
	streamtest.Equal(t, "events", got.String(), want.String())
}
