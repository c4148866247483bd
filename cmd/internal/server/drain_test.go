package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestAStopLetsRequestsEnd: a request in progress ends before the batcher, further ones are refused, and one that does not end
// holds the stop up for a while only.
func TestAStopLetsRequestsEnd(t *testing.T) {
	for name, hangs := range map[string]bool{"answered": false, "hangs": true} {
		t.Run(name, func(t *testing.T) {
			begun, release, batcherEnded, streamsEnded := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
			d := drain(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				close(begun)
				<-release
				select {
				case <-batcherEnded:
					w.WriteHeader(http.StatusServiceUnavailable)
				default:
					w.WriteHeader(http.StatusCreated)
				}
			}))
			want := http.StatusCreated
			if d.wait = 5 * time.Minute; hangs {
				d.wait, want = time.Millisecond, http.StatusServiceUnavailable
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				ended <- d.run(ctx, func() { close(streamsEnded) }, func(ctx context.Context) error {
					<-ctx.Done()
					close(batcherEnded)
					return nil
				})
			}()
			answer := httptest.NewRecorder()
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				d.ServeHTTP(answer, httptest.NewRequest("POST", "/", nil))
			}()
			<-begun
			cancel()
			<-streamsEnded
			refused := httptest.NewRecorder()
			d.ServeHTTP(refused, httptest.NewRequest("POST", "/", nil))
			if body := refused.Body.String(); refused.Code != http.StatusServiceUnavailable || !strings.Contains(body, `"code":"stopping"`) ||
				!strings.Contains(body, `"effect":"none"`) || refused.Header().Get("Connection") != "close" {
				t.Errorf("a request after the stop: %d %s", refused.Code, body)
			}
			if hangs {
				<-batcherEnded
			}
			close(release)
			<-answered
			if err := <-ended; err != nil || answer.Code != want {
				t.Errorf("%d, want %d; %v", answer.Code, want, err)
			}
		})
	}
}

// TestAStopWithoutRequests, and one while the batcher has ended by itself, wait for nothing.
func TestAStopWithoutRequests(t *testing.T) {
	d := drain(http.NotFoundHandler())
	d.wait = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.run(ctx, func() {}, func(ctx context.Context) error { <-ctx.Done(); return nil }); err != nil {
		t.Error(err)
	}
	d = drain(http.NotFoundHandler())
	d.wait = time.Hour
	if !d.enter() {
		t.Fatal("refused before the stop")
	}
	ctx, cancel = context.WithCancel(t.Context())
	fail := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- d.run(ctx, func() { close(fail) }, func(context.Context) error { <-fail; return context.DeadlineExceeded })
	}()
	cancel()
	if err := <-ended; err != context.DeadlineExceeded {
		t.Error(err)
	}
	if d.enter() {
		t.Error("a request begins after the stop")
	}
}
