package fanout

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

var noon = time.Date(2027, 1, 15, 12, 0, 0, 0, time.UTC)

func changed(change func(*settings.Settings)) *settings.Settings {
	s := settings.Default()
	change(s)
	return s
}

// stream is a reminder stream to whom a message costs so long, one after the other, and a fan-out that always has more.
type stream struct {
	p     *Pace
	now   time.Time
	each  time.Duration
	lands []time.Time // of those on their way
	sent  int
	work  time.Duration
	rests []time.Duration
}

// run lets it go on for so long.
func (s *stream) run(d time.Duration) {
	for end := s.now.Add(d); s.now.Before(end); {
		for len(s.lands) > 0 && !s.lands[0].After(s.now) {
			if s.lands = s.lands[1:]; len(s.lands) == 0 {
				s.p.empty(s.now)
			}
		}
		var again time.Time
		if len(s.lands) < s.p.window() {
			ok, later := s.p.may(s.now, len(s.lands))
			if ok {
				from := s.now
				if n := len(s.lands); n > 0 {
					from = s.lands[n-1]
				}
				s.lands = append(s.lands, from.Add(s.each))
				s.work += s.each
				s.sent++
				s.p.left(s.now)
				continue
			}
			again = later
		}
		next := end
		if !again.IsZero() {
			s.rests = append(s.rests, again.Sub(s.now))
			next = again
		}
		if len(s.lands) > 0 && s.lands[0].Before(next) {
			next = s.lands[0]
		}
		s.now = next
	}
}

// The rate holds over any second, and is used to the full; no pause is longer than 50 ms.
func TestPaceKeepsTheRate(t *testing.T) {
	for _, rate := range []int{1, 3, 10, 250, 5000} {
		p := NewPace(nil)
		p.Configure(changed(func(s *settings.Settings) { s.ReminderRate = rate }))
		s := &stream{p: p, now: noon, each: 50 * time.Microsecond}
		burst := int(float64(rate)*longestRest.Seconds()) + 1
		s.run(10 * time.Second)
		if most, least := 10*rate+burst, 10*rate*99/100-1; s.sent > most || s.sent < least {
			t.Errorf("at %d a second %d messages left in ten, expected %d to %d", rate, s.sent, least, most)
		}
		before := s.sent
		s.run(time.Second)
		if n := s.sent - before; n > rate+burst {
			t.Errorf("at %d a second %d messages left in one", rate, n)
		}
		// Hours without work save nothing up.
		s.now = s.now.Add(5 * time.Hour)
		before = s.sent
		s.run(time.Millisecond)
		if n := s.sent - before; n > burst {
			t.Errorf("at %d a second %d messages left at once", rate, n)
		}
		for _, rest := range s.rests {
			if rest <= 0 || rest > longestRest {
				t.Fatalf("at %d a second a pause of %s", rate, rest)
			}
		}
	}
	s := &stream{p: NewPace(nil), now: noon, each: 50 * time.Microsecond}
	if s.run(time.Second); s.sent < 19_900 {
		t.Errorf("without a rate %d messages left in a second, expected 20,000", s.sent)
	}
}

// Other settings are in force at once.
func TestPaceIsConfigured(t *testing.T) {
	p := NewPace(nil)
	for _, c := range []struct {
		s                    settings.Settings
		batch, window, chunk int
	}{
		{*settings.Default(), 5000, 64, MaxChunk},
		{settings.Settings{ReminderBatch: 100, ReminderConcurrency: 1}, 100, 1, MaxChunk},
		{settings.Settings{ReminderBatch: 500, ReminderConcurrency: 8, ReminderRate: 10}, 500, 8, 1250},
		{settings.Settings{ReminderBatch: 500, ReminderConcurrency: 8, ReminderRate: 1}, 500, 8, 500},
		{settings.Settings{ReminderBatch: 1, ReminderConcurrency: 64, ReminderRate: 1}, 1, 64, 1},
		{settings.Settings{ReminderBatch: 500, ReminderConcurrency: 64, ReminderRate: 1_000_000}, 500, 64, MaxChunk},
		{settings.Settings{}, 1, 1, MaxChunk}, // which nothing makes
	} {
		p.Configure(&c.s)
		if p.Batch() != c.batch || p.window() != c.window || p.Chunk() != c.chunk {
			t.Errorf("%+v: batch %d, window %d, chunk %d, expected %d, %d, %d", c.s, p.Batch(), p.window(), p.Chunk(), c.batch, c.window, c.chunk)
		}
	}
}

// While no commands are answered the fan-out has all the time, whatever the probes; while some are, it works in slices with
// rests, and has the share of time that it is given.
func TestPaceLeavesTimeToPeople(t *testing.T) {
	busy := false
	p := NewPace(func() bool { return busy })
	p.Look()
	s := &stream{p: p, now: noon, each: time.Millisecond}
	s.run(time.Second)
	if s.work < 990*time.Millisecond || p.Share() != 1 {
		t.Errorf("alone it worked %s of a second", s.work)
	}
	busy = true
	p.Look()
	for _, duty := range []float64{1. / 2, 1. / 4, 1. / 16} {
		p.duty = duty
		s.run(100 * time.Millisecond) // until what was before has landed
		before := s.work
		s.run(10 * time.Second)
		// A rest is 50 ms at most, so few messages in a slice keep within the share exactly.
		if share := (s.work - before).Seconds() / 10; share > duty*1.3 || share < duty*0.7 {
			t.Errorf("with a duty of %g it worked %.3f of the time", duty, share)
		}
	}
	for _, rest := range s.rests {
		if rest <= 0 || rest > longestRest {
			t.Fatalf("a pause of %s", rest)
		}
	}
	busy = false
	p.Look()
	s.run(100 * time.Millisecond)
	before := s.work
	if s.run(time.Second); s.work-before < 990*time.Millisecond {
		t.Errorf("alone again it worked %s of a second", s.work-before)
	}
}

// Probes above twice what they were without a fan-out halve the share, others let it grow; it never leaves 1/16 to 1.
func TestPaceFollowsTheProbes(t *testing.T) {
	p := NewPace(func() bool { return true })
	p.Look()
	now := noon
	for range 50 { // nothing goes out: this is how long it takes
		now = now.Add(time.Second)
		p.Acked(now, 3*time.Millisecond)
		p.Replied(now, 8*time.Millisecond, true)
		p.Replied(now, time.Second, false) // a large chunk: has nothing of others
	}
	if p.ack.baseline != 3*time.Millisecond || p.answer.baseline != 8*time.Millisecond || p.duty != firstDuty {
		t.Fatalf("baselines %s and %s, duty %g", p.ack.baseline, p.answer.baseline, p.duty)
	}
	probe := func(f func(time.Time, time.Duration), took, every time.Duration, n int) float64 {
		for range n {
			now = now.Add(every)
			p.left(now)
			f(now, took)
		}
		return p.duty
	}
	if d := probe(p.Acked, 6*time.Millisecond, settleFor, 1); d <= firstDuty {
		t.Errorf("twice as long is not slow, but the share is %g", d)
	}
	if d := probe(func(now time.Time, took time.Duration) { p.Replied(now, took, false) }, 17*time.Millisecond, settleFor, 1); d >= firstDuty {
		t.Errorf("after a slow answer the share is %g", d)
	}
	p.duty, now = 1, now.Add(settleFor)
	streamtest.Equal(t, "a change must show before the next: the share", probe(p.Acked, 7*time.Millisecond, time.Millisecond, 5), 0.5)
	streamtest.Equal(t, "the least share", probe(p.Acked, 7*time.Millisecond, settleFor, 20), leastDuty)
	if d := probe(p.Acked, 5*time.Millisecond, settleFor, 10); d > leastDuty+0.21 {
		t.Errorf("ten good probes made the share %g", d)
	}
	streamtest.Equal(t, "a hundred good probes made the share", probe(p.Acked, 5*time.Millisecond, settleFor, 100), 1)
	// A fast machine: what takes less than the floor is not slow.
	p.ack.baseline = 100 * time.Microsecond
	streamtest.Equal(t, "probes below the floor made the share", probe(p.Acked, ackFloor, settleFor, 10), 1)
	// The baseline is learned again when nothing goes out, and an old one is forgotten at once.
	now = now.Add(baselineAge + time.Second)
	if p.Acked(now, 9*time.Millisecond); p.ack.baseline != 9*time.Millisecond {
		t.Errorf("after a long time the baseline is %s", p.ack.baseline)
	}
}

// Whatever happens and however the clock jumps, the pace never stops a fan-out for good: with nothing on its way it gives
// a time within 50 ms, or lets it go.
func TestPaceNeverStops(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		busy := false
		p := NewPace(func() bool { return busy })
		now, flying := noon, 0
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			busy = rapid.Bool().Draw(t, "busy")
			p.Look()
			if rapid.IntRange(0, 5).Draw(t, "configure") == 0 {
				p.Configure(&settings.Settings{
					ReminderBatch: rapid.IntRange(0, 500).Draw(t, "batch"), ReminderConcurrency: rapid.IntRange(0, 64).Draw(t, "window"),
					ReminderRate: rapid.SampledFrom([]int{0, 1, 7, 100_000}).Draw(t, "rate"),
				})
			}
			switch rapid.IntRange(0, 3).Draw(t, "clock") {
			case 0:
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "on")))
			case 1:
				now = now.Add(-time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "back")))
			}
			p.Acked(now, time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "took")))
			ok, again := p.may(now, flying)
			switch {
			case ok && flying < p.window():
				p.left(now)
				flying++
			case ok || flying > 0:
				if flying > 0 {
					if flying--; flying == 0 {
						p.empty(now)
					}
				}
			case again.IsZero():
				t.Fatalf("stopped for good: %+v", *p)
			default:
				if d := again.Sub(now); d <= 0 || d > longestRest {
					t.Fatalf("a pause of %s", d)
				}
				now = again
			}
			if s := p.Share(); s < leastDuty || s > 1 || p.window() < 1 || p.Chunk() < 1 {
				t.Fatalf("share %g, window %d, chunk %d", s, p.window(), p.Chunk())
			}
		}
	})
}
