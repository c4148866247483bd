package streamtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	waitFor = 3 * time.Minute // far beyond what a busy machine needs; only a fact that never comes true waits so long
	// A poll is followed by a pause of a tenth of the wait so far, between these: polls by requests or queries use much CPU.
	pauseLeast = 5 * time.Millisecond
	pauseMost  = 25 * time.Millisecond
)

// Eventually waits until the fact holds, polling every few milliseconds, and fails the test after waitFor.
func Eventually(t testing.TB, what string, fact func() bool) {
	t.Helper()
	for start := time.Now(); !fact(); {
		waited := time.Since(start)
		if waited >= waitFor {
			t.Fatalf("waited %s in vain: %s", waitFor, what)
		}
		time.Sleep(min(max(waited/10, pauseLeast), pauseMost))
	}
}

// Buffer collects the output of a process or a logger while the test reads it. The zero Buffer is ready.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns the output so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Background calls run until stop, or the end of the test. An error of run fails the test, unless its connection was
// closed. stop waits for run to return, and may be called again.
func Background(t testing.TB, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// Sealed adds a value in the form of a seal to the headers of an event or reminder message, and returns them: readers
// without a key accept the message, those with one do not.
func Sealed(h nats.Header) nats.Header {
	h.Set(topology.HeaderSeal, strings.Repeat("A", 43))
	return h
}

// VerifyTestMain runs a package's tests and ends the process. It fails if goroutines are left.
func VerifyTestMain(m *testing.M, opts ...goleak.Option) { os.Exit(Leaks(m.Run(), opts...)) }

// Leaks returns the exit code of tests that ended with code: not 0 if goroutines are left. It waits for those that are
// about to end: goleak alone gives up after half a second, which is too soon on a busy machine. nats.go 1.55 leaves a goroutine, on a
// nil channel, where a connection ends right after its first asynchronous publish: cleanup takes the channel before it starts.
func Leaks(code int, opts ...goleak.Option) int {
	if code != 0 {
		return code
	}
	opts = append(opts, goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"))
	err := goleak.Find(opts...)
	for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); {
		err = goleak.Find(opts...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "goroutines are left:", err)
		return 1
	}
	return 0
}

// Must ends the test at an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Equal fails the test unless both are the same.
func Equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}
