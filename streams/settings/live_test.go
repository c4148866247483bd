package settings

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func TestAChangeIsInForceAtEveryServer(t *testing.T) {
	onBoth(t, func(t *testing.T, to connects, replicas int) {
		s := open(t, to.JetStream(t), replicas)
		a, b := watch(t, s), watch(t, open(t, to.JetStream(t), replicas))
		ready(t, a) // the bucket was missing, one of them made it
		ready(t, b)
		if now, _ := a.Current(); !now.equal(Default()) {
			t.Errorf("%+v", now)
		}
		set(t, s, "reminder.batch", "200")
		set(t, s, "reminder.rate", "3000")
		set(t, s, "reminder.concurrency", "8")
		set(t, s, "reminder.grace", "1h")
		set(t, s, "reminder.pause.summer", "true")
		set(t, s, "expiry.pause.summer", "true")
		for _, l := range []*Live{a, b} {
			holds(t, l, "all of it", func(s *Settings) bool {
				return s.ReminderBatch == 200 && s.ReminderRate == 3000 && s.ReminderConcurrency == 8 && s.ReminderGrace == time.Hour &&
					s.RemindersPaused["summer"] && s.ExpiryPaused["summer"]
			})
		}
		kept, _ := a.Current()
		set(t, s, "reminder.pause.summer", "false")
		set(t, s, "expiry.pause.summer", ToDefault)
		set(t, s, "reminder.grace", ToDefault)
		for _, l := range []*Live{a, b} {
			holds(t, l, "the pauses and the grace are taken back", func(s *Settings) bool {
				return !s.RemindersPaused["summer"] && !s.ExpiryPaused["summer"] && s.ReminderGrace == Default().ReminderGrace && s.ReminderBatch == 200
			})
			metrics(t, l, 9, 0)
			if st := l.Status(); !st.Following || st.Change != 9 || st.By != "ann@ops" {
				t.Errorf("%+v", st)
			}
		}
		if !kept.RemindersPaused["summer"] || kept.ReminderGrace != time.Hour {
			t.Errorf("settings that were handed out have changed: %+v", kept)
		}
	})
}

// TestTheLastGoodValueStays after any bad change; an ignored change is counted once, restarts included.
func TestTheLastGoodValueStays(t *testing.T) {
	server := streamtest.Start(t)
	js := server.JetStream(t)
	s := open(t, js, 1)
	set(t, s, "reminder.batch", "200")
	l := watch(t, s)
	holds2(t, l, 200)
	for i, bad := range []struct{ key, value string }{
		{changeKey(2), `{"setting":"reminder.batch","value":"0","was":"200","by":"hand","at":"2026-11-27T12:00:00Z"}`},
		{changeKey(3), `{"setting":"reminder.colour","value":"red","was":"default","by":"newer","at":"2026-11-27T12:00:00Z"}`},
		{changeKey(4), "nonsense"},
		{keyPrefix + "latest", `{"setting":"reminder.batch","value":"3","was":"200","by":"hand","at":"2026-11-27T12:00:00Z"}`},
	} {
		byHand(t, js, bad.key, bad.value)
		metrics(t, l, uint64(i+2), i+1)
		if now, _ := l.Current(); now.ReminderBatch != 200 {
			t.Errorf("%s is in force: %+v", bad.value, now)
		}
	}
	byHand(t, js, "elsewhere", "no change at all") // it is not read
	kv, err := js.KeyValue(t.Context(), topology.SettingsBucket)
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Delete(t.Context(), changeKey(5)); err != nil { // a marker for a key that never was
		t.Fatal(err)
	}
	metrics(t, l, 7, 5)
	if c := set(t, s, "reminder.rate", "10"); c.N != 6 {
		t.Errorf("the change behind those written by hand: %+v", c)
	}
	holds(t, l, "rate", func(s *Settings) bool { return s.ReminderRate == 10 && s.ReminderBatch == 200 })
	server.Restart(t)
	set(t, s, "reminder.rate", "20")
	holds(t, l, "rate", func(s *Settings) bool { return s.ReminderRate == 20 && s.ReminderBatch == 200 })
	metrics(t, l, 9, 5)
	all := history(t, s)
	ignored := 0
	for _, c := range all {
		if c.Ignored != "" {
			ignored++
		}
	}
	if len(all) != 8 || ignored != 5 || all[3].Value != "nonsense" || !strings.Contains(all[3].Ignored, "not understood") {
		t.Errorf("%d ignored of %+v", ignored, all)
	}
}

func holds2(t *testing.T, l *Live, n int) {
	t.Helper()
	what, fact := batch(n)
	holds(t, l, what, fact)
}

// TestWithoutNATSNothingChanges, and afterwards changes are heard of again: after a clean restart and after a crash.
func TestWithoutNATSNothingChanges(t *testing.T) {
	for _, crash := range []bool{false, true} {
		server := streamtest.Start(t)
		s := open(t, server.JetStream(t), 1)
		set(t, s, "reminder.batch", "200")
		set(t, s, "reminder.pause.summer", "true")
		l := watch(t, s)
		holds2(t, l, 200)
		before, changed := l.Current()
		if crash {
			server.Kill(t)
		} else {
			server.Shutdown()
			streamtest.Eventually(t, "it is known that changes are not heard of", func() bool { return !l.Status().Following && l.Status().Error != "" })
			server.Up(t)
		}
		streamtest.Eventually(t, "changes are heard of", func() bool { return l.Status().Following })
		select {
		case <-changed:
			t.Error("nothing was changed, and a change was reported")
		default:
		}
		if now, _ := l.Current(); now != before {
			t.Errorf("%+v, before %+v", now, before)
		}
		set(t, s, "reminder.batch", "300")
		holds2(t, l, 300)
		if now, _ := l.Current(); !now.RemindersPaused["summer"] {
			t.Errorf("%+v", now)
		}
	}
}

// TestAConnectionThatDeliversNothing: it is not closed, and neither answers nor changes arrive. The status shows that, and a
// change made meanwhile is in force afterwards.
func TestAConnectionThatDeliversNothing(t *testing.T) {
	server := streamtest.Start(t)
	s := open(t, server.JetStream(t), 1)
	set(t, s, "reminder.batch", "200")
	link := streamtest.NewLink(t, strings.TrimPrefix(server.ClientURL(), "nats://"))
	nc, err := nats.Connect("nats://"+link.Addr(), nats.IgnoreDiscoveredServers(), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	l := open(t, js, 1).Watch()
	l.every = 100 * time.Millisecond
	run(t, l)
	holds2(t, l, 200)
	link.Cut(false, true)
	streamtest.Eventually(t, "the status shows that changes are not received", func() bool { return !l.Status().Following && l.Status().Error != "" })
	set(t, s, "reminder.batch", "300")
	if now, _ := l.Current(); now.ReminderBatch != 200 {
		t.Errorf("%+v", now)
	}
	link.Heal()
	holds2(t, l, 300)
	follows(t, l)
}

// TestANodeOfAClusterGoes: the one that changes came from.
func TestANodeOfAClusterGoes(t *testing.T) {
	c := streamtest.StartCluster(t)
	s := open(t, c.JetStream(t), 3)
	set(t, s, "reminder.batch", "100")
	l := watch(t, s)
	holds2(t, l, 100)
	gone := c.StreamLeader(t, topology.SettingsStream)
	c.Stop(t, gone)
	set(t, s, "reminder.batch", "200")
	holds2(t, l, 200)
	c.Start(t, gone)
	set(t, s, "reminder.batch", "300")
	holds2(t, l, 300)
	if all := history(t, s); len(all) != 3 {
		t.Errorf("%+v", all)
	}
}

// TestNothingIsInForceBeforeAllIsRead: who starts on a long history does not pass through it.
func TestNothingIsInForceBeforeAllIsRead(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	s := open(t, js, 1)
	for _, value := range []string{"1", "2", "3", "4", "5"} {
		set(t, s, "reminder.batch", value)
	}
	l := s.Watch()
	at, changed := l.Current()
	if at.ReminderBatch != 500 {
		t.Errorf("%+v", at)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	<-changed
	if now, _ := l.Current(); now.ReminderBatch != 5 {
		t.Errorf("the first that was in force is %d", now.ReminderBatch)
	}
	ready(t, l)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if now, _ := l.Current(); now.ReminderBatch != 5 {
		t.Errorf("after Run: %+v", now)
	}
}

// TestABucketThatGoesTakesNothingOutOfForce, nor does a new one that a starting server makes; the first change in that
// begins a new history.
func TestABucketThatGoesTakesNothingOutOfForce(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	s := open(t, js, 1)
	set(t, s, "reminder.batch", "200")
	set(t, s, "reminder.pause.summer", "true")
	l := watch(t, s)
	holds(t, l, "the pause", func(s *Settings) bool { return s.RemindersPaused["summer"] && s.ReminderBatch == 200 })
	before, changed := l.Current()
	if err := js.DeleteStream(t.Context(), topology.SettingsStream); err != nil {
		t.Fatal(err)
	}
	streamtest.Eventually(t, "the loss is reported", func() bool { return strings.Contains(l.Status().Error, "is missing") })
	started := watch(t, open(t, js, 1))
	ready(t, started)
	streamtest.Eventually(t, "the empty new one is reported", func() bool { return strings.Contains(l.Status().Error, "without a change") })
	if st := l.Status(); st.Following || st.Change != 2 {
		t.Errorf("%+v", st)
	}
	select {
	case <-changed:
		t.Error("the new bucket took something out of force")
	default:
	}
	if now, _ := l.Current(); now != before {
		t.Errorf("%+v", now)
	}
	byHand(t, js, changeKey(1), "nonsense")
	metrics(t, started, 1, 1)
	if now, _ := l.Current(); now != before {
		t.Errorf("%+v", now)
	}
	set(t, s, "reminder.rate", "7")
	for _, l := range []*Live{l, started} {
		holds(t, l, "what was set since", func(s *Settings) bool {
			return s.ReminderRate == 7 && s.ReminderBatch == 500 && !s.RemindersPaused["summer"]
		})
		metrics(t, l, 2, 1)
		if follows(t, l); l.Status().Change != 2 {
			t.Errorf("%+v", l.Status())
		}
	}
}

// TestABucketMadeByOthersIsUsedWithAWarning: what nats.go makes lets changes be replaced.
func TestABucketMadeByOthersIsUsed(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: topology.SettingsBucket}); err != nil {
		t.Fatal(err)
	}
	s := open(t, js, 1)
	set(t, s, "reminder.batch", "200")
	l := watch(t, s)
	holds2(t, l, 200)
	stream, err := js.Stream(t.Context(), topology.SettingsStream)
	if err != nil || growsOnly(stream.CachedInfo().Config) {
		t.Errorf("%+v, %v", stream, err)
	}
	// A replaced change is the newest, for all servers alike.
	byHand(t, js, changeKey(1), `{"setting":"reminder.batch","value":"9","was":"default","by":"hand","at":"2026-11-27T12:00:00Z"}`)
	holds2(t, l, 9)
	if c := set(t, s, "reminder.batch", "10"); c.N != 2 {
		t.Errorf("%+v", c)
	}
	holds2(t, l, 10)
}

// full is a JetStream that makes no streams until there is room.
type full struct {
	jetstream.JetStream
	tried chan struct{} // one token
	room  chan struct{} // closed when there is
}

func (f full) CreateStream(ctx context.Context, config jetstream.StreamConfig) (jetstream.Stream, error) {
	select {
	case f.tried <- struct{}{}:
	default:
	}
	select {
	case <-f.room:
		return f.JetStream.CreateStream(ctx, config)
	default:
		return nil, &jetstream.APIError{Code: 500, ErrorCode: 10047, Description: "insufficient storage resources available"}
	}
}

// TestNothingCountsAsReadWithoutABucket: a start continues to wait for the settings, and its status has the reason.
func TestNothingCountsAsReadWithoutABucket(t *testing.T) {
	f := full{streamtest.Start(t).JetStream(t), make(chan struct{}, 1), make(chan struct{})}
	l := watch(t, open(t, f, 1))
	<-f.tried
	streamtest.Eventually(t, "the reason is reported", func() bool { return strings.Contains(l.Status().Error, "insufficient storage") })
	select {
	case <-l.Ready():
		t.Error("read what is not there")
	default:
	}
	close(f.room)
	ready(t, l)
	follows(t, l)
}
