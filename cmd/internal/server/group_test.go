package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

func TestMain(m *testing.M) { streamtest.VerifyTestMain(m) }

// diary records the order in which actors end.
type diary struct {
	mu    sync.Mutex
	ended []string
}

func (d *diary) actor(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		<-ctx.Done()
		d.mu.Lock()
		defer d.mu.Unlock()
		d.ended = append(d.ended, name)
		return ctx.Err()
	}
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func TestActorsStopInReverseOrder(t *testing.T) {
	var d diary
	g := newGroup(quiet(), time.Minute)
	for _, name := range []string{"http", "nats", "lanes", "api"} {
		g.start(name, d.actor(name))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.wait(ctx); err != nil {
		t.Fatalf("after the stop: %v", err)
	}
	if err := g.stop(); err != nil {
		t.Fatalf("a clean stop: %v", err)
	}
	if want := []string{"api", "lanes", "nats", "http"}; !slices.Equal(d.ended, want) {
		t.Errorf("ended as %v, want %v", d.ended, want)
	}
	if err := g.stop(); err != nil {
		t.Errorf("stopping again: %v", err)
	}
}

func TestOneActorsEndStopsAll(t *testing.T) {
	broke := errors.New("broke")
	for _, c := range []struct {
		err  error
		want string
	}{{broke, "lanes: broke"}, {nil, "lanes ended"}} {
		var d diary
		g := newGroup(quiet(), time.Minute)
		g.start("nats", d.actor("nats"))
		g.start("lanes", func(context.Context) error { return c.err })
		err := g.wait(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) || c.err != nil && !errors.Is(err, broke) {
			t.Errorf("%v, want %q", err, c.want)
		}
		if err := g.stop(); c.err == nil && err != nil {
			t.Errorf("stop: %v", err)
		}
		if len(d.ended) != 1 {
			t.Error("the other actor was not stopped")
		}
	}
}

func TestAnActorThatDoesNotStopIsLeftBehind(t *testing.T) {
	var d diary
	release := make(chan struct{})
	ended := make(chan struct{})
	g := newGroup(quiet(), time.Millisecond)
	g.start("nats", d.actor("nats"))
	g.start("stuck", func(context.Context) error { <-release; close(ended); return nil })
	streamtest.Must(t, g.stop())
	close(release)
	<-ended
}
