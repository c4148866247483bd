package hold

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth/authtest"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

func TestMain(m *testing.M) { streamtest.VerifyTestMain(m) }

// knobs are settings that a test changes.
type knobs struct {
	mu      sync.Mutex
	now     settings.Settings
	changed chan struct{}
}

func (k *knobs) Current() (*settings.Settings, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.now
	return &s, k.changed
}

func (k *knobs) set(change func(*settings.Settings)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(&k.now)
	close(k.changed)
	k.changed = make(chan struct{})
}

// rig is a log whose reminders the test fires itself.
type rig struct {
	server *streamtest.Server
	js     jetstream.JetStream
	log    topology.Log
	knobs  *knobs
	fired  map[string]string // the customer of each reminder, "campaign r"
	r      uint64
}

func newRig(t *testing.T, lanes int) *rig {
	t.Helper()
	r := &rig{server: streamtest.Start(t, authtest.Servers(lanes)), knobs: &knobs{now: *settings.Default(), changed: make(chan struct{})}, fired: map[string]string{}}
	var err error
	if r.js, err = jetstream.New(r.server.Conn(t)); err == nil {
		r.log, err = topology.Ensure(t.Context(), r.js, topology.Spec{Lanes: lanes, KeyFingerprint: "test"})
	}
	streamtest.Must(t, err)
	r.log = r.log.WithKey([32]byte{1})
	return r
}

// fire writes a message, of each customer a reminder.
func (r *rig) fire(t *testing.T, lane int, hold bool, campaign string, customers ...string) {
	t.Helper()
	s := eventlog.Reminders(r.js, lane).In(r.log)
	bounds, err := s.Bounds(t.Context())
	streamtest.Must(t, err)
	ev := wire.Event{Type: wire.ReminderDue, Campaign: campaign, At: wire.At(time.Now()), Kind: wire.KindOpens, DueAt: wire.At(time.Now()), CustomerIDs: customers}
	for _, c := range customers {
		r.r++
		ev.Rs = append(ev.Rs, r.r)
		if hold {
			r.fired[fmt.Sprint(campaign, " ", r.r)] = c
		}
	}
	payload := append(ev.AppendJSON(nil), '\n')
	h := eventlog.Header{Owner: "test", Source: eventlog.Source{Sequence: bounds.Last + 1, Line: 1, LastR: r.r}, SourceDigest: strings.Repeat("0", 32), Hold: hold}
	_, err = r.js.PublishMsg(t.Context(), &nats.Msg{Subject: topology.Rmd(lane), Header: s.Sealer().Encode(h, bounds.Last+1, payload), Data: payload})
	streamtest.Must(t, err)
}

// stage starts one, as a process of its own. stop ends it wherever it is.
func (r *rig) stage(t *testing.T) (s *Stage, stop func()) { return r.stageBy(t, wall.Machine) }

func (r *rig) stageBy(t *testing.T, clock wall.Clock) (s *Stage, stop func()) {
	t.Helper()
	js, err := jetstream.New(r.server.Conn(t))
	streamtest.Must(t, err)
	s = New(Options{JetStream: js, Log: r.log, Settings: r.knobs, Clock: clock, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil { // as its lease does
			_ = s.Run(ctx)
			_ = natsx.Pause(ctx, 200*time.Millisecond)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return s, stop
}

// out reads all that was let out: the reminders, and how many messages there were.
func (r *rig) out(t *testing.T) (seen map[string]int, sent int, order map[string][]uint64) {
	t.Helper()
	seen, order = map[string]int{}, map[string][]uint64{}
	reader, err := eventlog.Out(r.js).In(r.log).Open(t.Context(), r.log.UUID, eventlog.Position{Log: r.log.UUID}, eventlog.ReaderOptions{})
	streamtest.Must(t, err)
	defer reader.Close()
	streamtest.Must(t, reader.CatchUp(t.Context(), func(batch []eventlog.Message) error {
		for _, m := range batch {
			for _, text := range eventlog.Lines(m.Payload) {
				var ev wire.Event
				streamtest.Must(t, wire.ParseEvent(text, &ev))
				if !ev.Merged {
					sent += len(ev.Rs)
				}
				for i, c := range ev.CustomerIDs {
					key := fmt.Sprint(ev.Campaign, " ", ev.Rs[i])
					if r.fired[key] != c {
						t.Errorf("%s is of %q and was let out to %q", key, r.fired[key], c)
					}
					seen[key]++
					order[c] = append(order[c], ev.Rs[i])
				}
			}
		}
		return nil
	}))
	return seen, sent, order
}

// once waits until all is let out, and fails unless that is once.
func (r *rig) once(t *testing.T) (sent int, order map[string][]uint64) {
	t.Helper()
	var seen map[string]int
	streamtest.Eventually(t, "all is let out", func() bool {
		seen, sent, order = r.out(t)
		return len(seen) >= len(r.fired)
	})
	for key, n := range seen {
		if n != 1 {
			t.Errorf("%s was let out %d times", key, n)
		}
	}
	return sent, order
}

func TestFiveCampaignsAreOneMessage(t *testing.T) {
	r := newRig(t, 2)
	r.knobs.set(func(s *settings.Settings) { s.PushMerge = time.Second })
	s, _ := r.stage(t)
	var people []string
	for n := range 2_000 {
		people = append(people, fmt.Sprint("customer-", n))
	}
	for n := range 5 {
		r.fire(t, n%2, true, fmt.Sprint("campaign-", n), people...)
	}
	r.fire(t, 0, false, "other", "ann") // senders have it from the lane
	if sent, _ := r.once(t); sent != len(people) {
		t.Errorf("%d messages to %d customers", sent, len(people))
	}
	streamtest.Eventually(t, "the counts are there", func() bool {
		state := s.State()
		return state != nil && state.Counts == Counts{Sent: 2000, Merged: 8000} && state.Held == 0
	})
}

// A stage that ends anywhere, in a window or in a change of shards, loses and doubles nothing; nor do two that run at once.
func TestStagesThatDie(t *testing.T) {
	r := newRig(t, 2)
	r.knobs.set(func(s *settings.Settings) { s.PushMerge = 300 * time.Millisecond })
	random := rand.New(rand.NewPCG(7, 7))
	var second func()
	for round := range 20 {
		_, stop := r.stage(t)
		for range random.IntN(6) {
			var people []string
			for range 1 + random.IntN(40) {
				people = append(people, fmt.Sprint("c", random.IntN(30)))
			}
			r.fire(t, random.IntN(2), true, fmt.Sprint("campaign-", random.IntN(3)), people...)
			r.knobs.set(func(s *settings.Settings) { s.PushShards, s.PushBatch = 1+random.IntN(5), 1+random.IntN(20) })
			time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
		}
		if round == 10 {
			_, second = r.stage(t) // with the one of the round, and those after it
		}
		if round == 15 {
			second()
		}
		stop()
	}
	r.stage(t)
	r.once(t)
}

// The order of a customer's reminders outlasts changes of the number of shards, while nothing is merged.
func TestShardsKeepTheOrder(t *testing.T) {
	r := newRig(t, 1)
	r.knobs.set(func(s *settings.Settings) { s.PushCap = 1000 })
	r.stage(t)
	for n := range 60 {
		r.fire(t, 0, true, "summer", "ann", "bob", "cy")
		r.knobs.set(func(s *settings.Settings) { s.PushShards = 1 + n%7 })
	}
	_, order := r.once(t)
	for customer, rs := range order {
		for i := range rs[1:] {
			if rs[i] > rs[i+1] {
				t.Errorf("%s got %d after %d", customer, rs[i+1], rs[i])
			}
		}
	}
}

// What ends before the settings are changed is let out when they are: nothing waits for a stage that is not there.
func TestTheWindowIsClosed(t *testing.T) {
	r := newRig(t, 1)
	r.knobs.set(func(s *settings.Settings) { s.PushMerge = time.Hour })
	s, stop := r.stage(t)
	r.fire(t, 0, true, "summer", "ann", "bob")
	streamtest.Eventually(t, "two are held", func() bool { state := s.State(); return state != nil && state.Held == 2 })
	stop()
	r.knobs.set(func(s *settings.Settings) { s.PushMerge = 0 })
	r.stage(t)
	r.once(t)
}

// Positions of another log, as after a restore, or none at all, are no harm.
func TestPositionsOfAnotherLog(t *testing.T) {
	r := newRig(t, 1)
	r.knobs.set(func(s *settings.Settings) { s.PushCap = 5 })
	_, stop := r.stage(t)
	r.fire(t, 0, true, "summer", "ann", "bob")
	r.once(t)
	stop()
	kv, err := push.OpenBucket(t.Context(), r.js)
	streamtest.Must(t, err)
	for _, text := range []string{
		`{"format":1,"lanes":[{"log":"` + r.log.UUID + `","lane":0,"sequence":1,"digest":"` + strings.Repeat("0", 32) + `"}],"out":{"log":"` + r.log.UUID + `"}}`,
		`{"format":1,"lanes":[{"log":"` + r.log.UUID + `","lane":0,"sequence":99,"digest":"` + strings.Repeat("0", 32) + `"}],"out":{"log":"` + r.log.UUID + `"},"sent":77}`,
		`{"format":1,"lanes":[],"out":{"log":"another","sequence":1}}`,
	} {
		_, err := kv.Put(t.Context(), Key, []byte(text))
		streamtest.Must(t, err)
		s, stop := r.stage(t)
		r.fire(t, 0, true, "summer", "cy")
		r.once(t)
		want := uint64(len(r.fired))
		streamtest.Eventually(t, "all are counted", func() bool { state := s.State(); return state != nil && state.Sent == want })
		stop()
	}
}

// While nothing is to be held back the stage reads nothing, but looks now and then; and at once when a setting is set.
func TestTheStageRests(t *testing.T) {
	r := newRig(t, 1)
	clock := streamtest.NewClock()
	_, stop := r.stageBy(t, clock)
	reads := func() bool {
		stream, err := r.js.Stream(t.Context(), topology.RmdStream(0))
		streamtest.Must(t, err)
		return stream.CachedInfo().State.Consumers > 0
	}
	streamtest.Eventually(t, "it rests", func() bool { return !reads() })
	r.fire(t, 0, true, "summer", "ann") // by a fan-out that had the settings of before
	streamtest.Eventually(t, "it has looked", func() bool {
		clock.Move(lookEvery)
		seen, _, _ := r.out(t)
		return len(seen) == 1
	})
	r.fire(t, 0, false, "summer", "bob")
	r.knobs.set(func(s *settings.Settings) { s.PushMerge = time.Hour })
	streamtest.Eventually(t, "it reads", reads)
	r.fire(t, 0, true, "summer", "cy")
	stop()
	r.knobs.set(func(s *settings.Settings) { s.PushMerge = 0 })
	r.stage(t)
	r.once(t)
}
