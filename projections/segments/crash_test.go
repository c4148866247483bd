package segments

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

const atWork = "SELECT count(*)::text FROM pg_stat_activity " +
	"WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()"

// Whatever a run leaves behind when it dies in a step, or another process takes over in it, the next one goes on with: a young
// segment, full ones, a copy that is not complete or not shown; and what was merged and not removed.
func TestCrashes(t *testing.T) {
	for _, how := range []string{dies, diesAfter, overtaken} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t)
			s := r.open(Options{Rows: 100, Waiting: 9})
			for range 8 { // nothing is sealed
				r.claim(s, 0, 60)
				r.claim(s, 1, 40)
			}
			streamtest.Equal(t, "rows without an index", r.text(unindexed), "800")
			for _, doing := range []string{"beginning a segment", "indexing", "sealing", "beginning a merged segment", "copying into", "merging into",
				"looking who uses", "removing"} {
				r.crash(doing, how)
			}
			s = r.open(Options{Rows: 100})
			r.run(s)
			streamtest.Must(t, s.Finish(t.Context()))
			streamtest.Equal(t, "rows without an index", r.text(unindexed), "0")
			s.calm()
			r.until("tables", allDropped, "true")
			r.whole()
		})
	}
}

const (
	dies      = "its connection dies"
	diesAfter = "its process dies after it"
	overtaken = "another process takes over"
)

// crash has a set in a step when something happens.
func (r *rig) crash(doing, how string) {
	r.t.Helper()
	s := r.open(Options{Rows: 100})
	crashed := errors.New("crashed")
	over := make(chan *Set, 1)
	var once sync.Once
	s.crash = func(step string, tx pgx.Tx, committed bool) (err error) {
		if !strings.HasPrefix(step, doing) || committed != (how == diesAfter) {
			return nil
		}
		switch {
		case committed:
			return crashed
		case how == dies:
			_, err = r.pool.Exec(r.t.Context(), "SELECT pg_terminate_backend($1)", tx.Conn().PgConn().PID())
		default:
			once.Do(func() { r.takeOver(step, over) })
		}
		return err
	}
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(r.t.Context())
	defer stop()
	go func() { ended <- s.Run(ctx) }()
	err := r.claims(ctx, s, ended)
	if how == overtaken {
		next := <-over
		if !errors.Is(err, ErrFenced) {
			r.t.Errorf("%s: %v, and another process took over", doing, err)
		}
		if _, err := s.begin(ctx); !errors.Is(err, ErrFenced) {
			r.t.Errorf("%s: another process took over, and the former one begins a segment: %v", doing, err)
		}
		stopNext := r.run(next)
		r.claim(next, 0, 30)
		r.claim(next, 1, 30)
		streamtest.Must(r.t, next.Finish(r.t.Context()))
		stopNext()
	} else if errors.Is(err, crashed) != (how == diesAfter) || err == nil {
		r.t.Errorf("%s, %s: %v", doing, how, err)
	}
	stop()
	r.until("sessions at work", atWork, "0") // a commit that is given up may still be made
	r.whole()
}

// takeOver has another process open the set while a step of this one is not committed. It waits for a short one, and for no other.
func (r *rig) takeOver(step string, over chan<- *Set) {
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		next, err := r.tryOpen(Options{Rows: 100})
		if err != nil {
			r.t.Error(err)
		}
		over <- next
	}()
	if strings.HasPrefix(step, "indexing") || strings.HasPrefix(step, "copying") {
		<-opened
		return
	}
	r.until("it waits for the step", "SELECT (count(*) > 0)::text FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query ~ '^\\s*UPDATE .* SET owner'", "true")
}

// claims writes claims until a step fails: one of Run's, or one of Take's.
func (r *rig) claims(ctx context.Context, s *Set, ended <-chan error) error {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	for i := 0; ; i++ {
		select {
		case err := <-ended:
			return err
		default:
		}
		if i >= 9 { // enough to merge
			s.calm()
			time.Sleep(time.Millisecond)
			continue
		}
		taking, enough := context.WithTimeout(ctx, time.Second) // Run may have ended
		err := r.tryClaim(taking, s, i%2, 90)
		enough()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) { // of the connection, or the fence
			return err
		}
	}
}

// After another process has opened the set, a former owner changes nothing: it begins, seals, merges, shows and drops no segment, also
// after the new one has merged what it was about to seal.
func TestFormerOwnerChangesNothing(t *testing.T) {
	r := newRig(t)
	former := r.open(Options{Rows: 100, Waiting: 99})
	for range 9 {
		r.claim(former, 0, 90) // nothing is sealed
	}
	next := r.open(Options{Rows: 100})
	stop := r.run(next)
	r.claim(next, 0, 10) // the former one has begun no segment of that number
	streamtest.Must(t, next.Finish(t.Context()))
	stop()
	streamtest.Must(t, next.mergeSome(t.Context()))
	const state = "SELECT string_agg(g::text, ' ' ORDER BY segment) FROM scrip_1.segment g"
	before := r.text(state)
	for name, step := range map[string]func(context.Context) error{
		"begins": func(ctx context.Context) error { _, _, err := former.Take(ctx, 90); return err },
		"seals":  func(ctx context.Context) error { return former.seal(ctx, -1) },
		"merges": func(ctx context.Context) error { return former.merge(ctx, []int32{-9}) },
		"shows": func(ctx context.Context) error {
			former.copied = &copied{number: -1, sources: []int32{-9}}
			return former.swap(ctx)
		},
		"detaches": func(ctx context.Context) error { return former.detach(ctx, nil, -1) },
		"drops":    func(ctx context.Context) error { return former.drop(ctx, -1) },
	} {
		if err := step(t.Context()); !errors.Is(err, ErrFenced) {
			t.Errorf("it %s a segment: %v", name, err)
		}
	}
	streamtest.Equal(t, "segments", r.text(state), before)
	r.whole()
	streamtest.Must(t, next.remove(t.Context()))
	r.until("tables", allDropped, "true")
	r.whole()
}
