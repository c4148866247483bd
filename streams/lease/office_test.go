package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const keys = 4

// office watches who works on what, over all servers of a test.
type office struct {
	t       *testing.T
	bucket  *memory // nil: in NATS
	keys    int
	settle  func()        // waits until nothing happens without time going by
	changed chan struct{} // one token when work starts or ends

	mu     sync.Mutex
	works  [][]string         // servers at work on a key now
	twice  bool               // two servers were at work on one key
	causes map[string][]error // why work ended, by server
}

// inBubble runs a test in a bubble of synctest, with a bucket in memory.
func inBubble(t *testing.T, keys int, test func(t *testing.T, o *office)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, keys)
		o.bucket, o.settle = newMemory(), synctest.Wait
		test(t, o)
	})
}

func newOffice(t *testing.T, keys int) *office {
	return &office{t: t, keys: keys, settle: func() {}, changed: make(chan struct{}, 1), works: make([][]string, keys), causes: map[string][]error{}}
}

// pass lets time go by, and everything settle that happens in that time.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// server is one manager and the way to its bucket.
type server struct {
	*site
	*Manager
	o      *office
	cancel context.CancelFunc
	ended  chan error
}

// start runs a manager whose work waits to be cancelled.
func (o *office) start(name string) *server {
	o.t.Helper()
	at := o.bucket.site()
	s := o.startOn(at, name, Options{}, o.work(name))
	s.site = at
	return s
}

// work waits to be cancelled.
func (o *office) work(name string) func(context.Context, int) error {
	return func(ctx context.Context, key int) error {
		o.change(func() {
			o.works[key] = append(o.works[key], name)
			o.twice = o.twice || len(o.works[key]) > 1
		})
		<-ctx.Done()
		o.change(func() {
			o.works[key] = slices.DeleteFunc(o.works[key], func(s string) bool { return s == name })
			o.causes[name] = append(o.causes[name], context.Cause(ctx))
		})
		return ctx.Err()
	}
}

func (o *office) change(f func()) {
	o.mu.Lock()
	f()
	o.mu.Unlock()
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

func (o *office) startOn(at store, name string, opts Options, work func(context.Context, int) error) *server {
	o.t.Helper()
	opts.Logger = quiet
	m, err := newManager(at, "lane", o.keys, name, opts)
	if err != nil {
		o.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &server{Manager: m, o: o, cancel: cancel, ended: make(chan error, 1)}
	s.signals.announced.Watch()
	go func() { s.ended <- m.Run(ctx, work) }()
	o.t.Cleanup(s.stop)
	o.settle()
	return s
}

// stop stops cleanly and waits.
func (s *server) stop() {
	if s.cancel == nil {
		return
	}
	s.cancel()
	s.cancel = nil
	if err := <-s.ended; !errors.Is(err, context.Canceled) {
		s.o.t.Errorf("Run ended with %v", err)
	}
	s.o.settle()
}

// even reports whether each of the servers, and no other, has its share.
func (o *office) even(servers ...string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	load := map[string]int{}
	for _, at := range o.works {
		if len(at) != 1 || !slices.Contains(servers, at[0]) {
			return false
		}
		load[at[0]]++
	}
	for _, s := range servers {
		if load[s] < o.keys/len(servers) || load[s] > (o.keys+len(servers)-1)/len(servers) {
			return false
		}
	}
	return true
}

// spread checks that each of the servers, and no other, has its even share now.
func (o *office) spread(servers ...string) {
	o.t.Helper()
	if !o.even(servers...) {
		o.t.Fatalf("the work is not spread over %s: %s", servers, o)
	}
}

// await waits until each of the servers, and no other, has its even share.
func (o *office) await(servers ...string) {
	o.t.Helper()
	for end := time.After(3 * time.Minute); !o.even(servers...); {
		select {
		case <-o.changed:
		case <-end:
			o.t.Fatalf("the work is not spread over %s: %s", servers, o)
		}
	}
}

func (o *office) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return fmt.Sprint(o.works)
}

// at returns who works on a key.
func (o *office) at(key int) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.works[key])
}

// undisturbed checks that never two servers worked on the same key, and that no work has ended.
func (o *office) undisturbed() {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.twice || len(o.causes) > 0 {
		o.t.Errorf("two servers worked on the same key: %t; work ended: %v", o.twice, o.causes)
	}
}

// by writes a key as another server would.
func (o *office) by(key, server, nonce string) {
	o.t.Helper()
	o.bucket.mu.Lock()
	defer o.bucket.mu.Unlock()
	if _, err := o.bucket.write(update{key: key, value: fmt.Appendf(nil, `{"server":%q,"nonce":%q}`, server, nonce)}, time.Hour, whatever); err != nil {
		o.t.Fatal(err)
	}
}

// gone deletes a key.
func (o *office) gone(key string) {
	o.t.Helper()
	if err := o.bucket.site().remove(o.t.Context(), key, whatever); err != nil {
		o.t.Fatal(err)
	}
}

// inspect reads the leases as operators do.
func (o *office) inspect() Status {
	o.t.Helper()
	s, err := inspect(o.t.Context(), o.bucket.site(), "lane", o.keys)
	if err != nil {
		o.t.Fatal(err)
	}
	return s
}
