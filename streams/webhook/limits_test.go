package webhook

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// letter makes a dead letter of ann's claim: the endpoint is away until the event is older than the age limit.
func letter(t *testing.T, r *rig, run *Runner, e Endpoint, clock *streamtest.Clock) {
	t.Helper()
	r.answers(unavailable)
	stop := r.serve(t, run, e)
	r.event(t, claimed("ann"))
	r.until(t, "the breaker is open", func() bool { return run.Stats()[e.ID].Away })
	r.until(t, "the event is given up", func() bool { clock.Move(6 * time.Hour); return run.Stats()[e.ID].Dead == 1 })
	stop()
}

// An event that is older than the age limit is given up without a request, and not before.
func TestAgeLimit(t *testing.T) {
	r := newRig(t)
	e, _ := r.create(t, Config{MaxAge: wire.Period(24 * time.Hour)})
	clock := streamtest.NewClock()
	started := clock.Now()
	run := r.runner(r.js, func(o *Options) { o.Clock = clock })
	letter(t, r, run, e, clock)
	if age := clock.Now().Sub(started); age < 24*time.Hour {
		t.Errorf("given up after %s", age)
	}
	all, next, err := r.store.Letters(within(t), e.ID, 0, 10)
	if err != nil || next != 0 || len(all) != 1 || !strings.Contains(all[0].Error, "too old") || len(all[0].Reminders) != 1 {
		t.Errorf("%+v, %d, %v", all, next, err)
	}
}

// Dead letters are delivered again when that is requested, under the id of the first try; those that fail again stay, also
// across a replay.
func TestDeadLettersAreRetried(t *testing.T) {
	r := newRig(t)
	e, _ := r.create(t, Config{MaxAge: wire.Period(24 * time.Hour)})
	clock := streamtest.NewClock()
	letter(t, r, r.runner(r.js, func(o *Options) { o.Clock = clock }), e, clock)
	first := r.received()[0]
	for _, c := range []Change{{What: Pause}, {What: Replay, From: time.Now()}} { // retries do not depend on either
		c.Webhook = e.ID
		r.make(t, c)
	}
	streamtest.Background(t, r.runner(r.js, nil).Run)
	retry := func(want string) {
		t.Helper()
		r.make(t, Change{Webhook: e.ID, What: Retry})
		r.until(t, "the retry has a result", func() bool {
			e, err := r.store.Show(within(t), e.ID)
			return err == nil && !e.Retrying() && strings.Contains(e.LastRetry, want)
		})
	}
	retry("0 delivered, 1 not: the endpoint responded 503")
	if all, _, err := r.store.Letters(within(t), e.ID, 0, 10); err != nil || len(all) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	r.answers(nil)
	before := len(r.received())
	retry("1 delivered, 0 not")
	got := r.received()
	if last := got[len(got)-1]; len(got) != before+1 || last.header.Get("webhook-id") != first.header.Get("webhook-id") || last.body != first.body {
		t.Errorf("%d requests, the last one %+v", len(got)-before, last)
	}
	if all, _, err := r.store.Letters(within(t), e.ID, 0, 10); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	retry("0 delivered, 0 not")
}

// Pages have each dead letter once, oldest first, those of before a replay and those of after it.
func TestDeadLettersInPages(t *testing.T) {
	r := newRig(t)
	e, _ := r.create(t, Config{MaxAge: wire.Period(24 * time.Hour)})
	r.answers(unavailable)
	clock := streamtest.NewClock()
	run := r.runner(r.js, func(o *Options) { o.Clock = clock })
	giveUp := func(dead uint64, lines ...string) {
		t.Helper()
		stop := r.serve(t, run, e)
		defer stop()
		for _, line := range lines {
			r.event(t, line)
		}
		r.until(t, "all events are given up", func() bool { clock.Move(6 * time.Hour); return uint64(run.Stats()[e.ID].Dead) == dead })
	}
	giveUp(3, claimed("ann"), claimed("bob"), claimed("cid"))
	e = r.make(t, Change{Webhook: e.ID, What: Replay, From: e.Created})
	giveUp(4, claimed("dan")) // and the three again

	var names []string
	last := uint64(0)
	for after, pages := uint64(0), 1; ; pages++ {
		page, next, err := r.store.Letters(within(t), e.ID, after, 2)
		streamtest.Must(t, err)
		for _, l := range page {
			if names = append(names, l.Name); l.ID <= last {
				t.Errorf("letter %d comes after %d", l.ID, last)
			}
			last = l.ID
		}
		if next == 0 {
			if pages != 4 {
				t.Errorf("7 letters are in %d pages of 2", pages)
			}
			break
		}
		after = next
	}
	before, now := e.names(0, true)[1], e.name(0)
	if want := []string{before, before, before, now, now, now, now}; !slices.Equal(names, want) {
		t.Errorf("the letters are of %v, want %v", names, want)
	}
	if page, next, err := r.store.Letters(within(t), e.ID, 0, 7); err != nil || len(page) != 7 || next != 0 {
		t.Errorf("a page of all has %d letters, %d, %v", len(page), next, err)
	}
}

// A replay that would leave out what is not delivered is refused, with the time that would not: what waits is part of a replay.
func TestAReplayLeavesNothingOut(t *testing.T) {
	r := newRig(t)
	e, _ := r.create(t, Config{})
	replay := func(from time.Time) (Endpoint, error) {
		return r.store.Make(within(t), ann, Change{Webhook: e.ID, What: Replay, From: from}, 0)
	}
	refused := func(when string, oldest time.Time, err error) {
		t.Helper()
		var invalid *InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "since "+oldest.UTC().Format(time.RFC3339)+" is not delivered") {
			t.Errorf("%s: %v, want %s", when, err, oldest)
		}
	}
	_, err := replay(time.Now())
	refused("it was never run", e.Created, err)
	if _, err := replay(time.Now().Add(time.Hour)); err == nil || !strings.Contains(err.Error(), "in the past") {
		t.Errorf("a replay from the future: %v", err)
	}

	run := r.runner(r.js, nil)
	stop := r.serve(t, run, e)
	r.event(t, claimed("old")) // which no replay below delivers again
	r.until(t, "the first claim is delivered", func() bool { return run.Stats()[e.ID].Pushed == 1 })
	r.answers(unavailable)
	r.event(t, claimed("ann"))
	r.until(t, "the endpoint is away", func() bool { return run.Stats()[e.ID].Away })
	stop()
	stream, err := r.js.Stream(within(t), topology.EvtStream(0))
	streamtest.Must(t, err)
	m, err := stream.GetLastMsgForSubject(within(t), topology.Evt(0))
	streamtest.Must(t, err)
	r.event(t, claimed("bob"))
	_, err = replay(m.Time.Add(time.Nanosecond))
	refused("ann's claim is not delivered", m.Time, err)

	r.answers(nil)
	before := len(r.received())
	again, err := replay(m.Time)
	streamtest.Must(t, err)
	_, err = replay(time.Now())
	refused("the replay was never run", m.Time, err)
	run = r.runner(r.js, nil)
	r.serve(t, run, again)
	r.until(t, "both are delivered", func() bool { return run.Stats()[e.ID].Pushed == 2 })
	for _, got := range r.received()[before:] {
		if strings.Contains(got.body, "old") {
			t.Error("what was before the time is delivered again")
		}
	}
	if n := len(r.received()); n != before+2 {
		t.Errorf("%d requests", n-before)
	}
	r.until(t, "a later replay is possible", func() bool { _, err = replay(time.Now()); return err == nil })
}

// A retry ends when its endpoint is changed: what it has not sent yet does not go to the URL of before.
func TestARetryEndsAtAChange(t *testing.T) {
	r := newRig(t)
	e, _ := r.create(t, Config{MaxAge: wire.Period(24 * time.Hour)})
	clock := streamtest.NewClock()
	letter(t, r, r.runner(r.js, func(o *Options) { o.Clock = clock }), e, clock)
	r.answers(nil)
	changed := e.Config
	changed.URL += "/new"
	r.make(t, Change{Webhook: e.ID, What: Update, Config: &changed})
	run := r.runner(r.js, nil)
	streamtest.Background(t, run.Run)
	r.until(t, "the change is read", func() bool { now, _, _ := run.state(); return len(now) == 1 && now[0].URL == changed.URL })
	before := len(r.received())
	run.retry(within(t), e) // as it was before the change
	if n := len(r.received()) - before; n != 0 {
		t.Errorf("%d requests went to the URL of before", n)
	}
	if now, err := r.store.Show(within(t), e.ID); err != nil || !strings.Contains(now.LastRetry, "was changed") {
		t.Errorf("the result is %q, %v", now.LastRetry, err)
	}
}
