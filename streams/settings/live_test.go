package settings

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/changelog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// batch is a change of reminder.batch.
func batch(n int) string {
	return fmt.Sprintf(`{"setting":"reminder.batch","value":"%d","was":"default","by":"ann@ops","at":"2026-11-27T12:00:00Z"}`, n)
}

// TestAChangeIsInForceAtEveryServer, on a log that others make with the bucket; package changelog shows it for clusters, lost
// connections and lost buckets.
func TestAChangeIsInForceAtEveryServer(t *testing.T) {
	server := streamtest.Start(t)
	s := open(t, server.JetStream(t))
	a, b := watch(t, s), watch(t, open(t, server.JetStream(t)))
	<-a.Ready() // the bucket was missing, one of them made it
	<-b.Ready()
	if now, _ := a.Current(); !now.equal(Default()) {
		t.Errorf("%+v", now)
	}
	for setting, value := range map[string]string{"reminder.batch": "200", "reminder.rate": "3000", "reminder.concurrency": "8", "reminder.grace": "1h",
		"reminder.pause.summer": "true", "expiry.pause.summer": "true"} {
		set(t, s, setting, value)
	}
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
	answered := time.Now()
	for _, l := range []*Live{a, b} {
		holds(t, l, "the pauses and the grace are taken back", func(s *Settings) bool {
			return !s.RemindersPaused["summer"] && !s.ExpiryPaused["summer"] && s.ReminderGrace == Default().ReminderGrace && s.ReminderBatch == 200
		})
		if took := time.Since(answered); took > time.Second {
			t.Errorf("in force %s after the change was answered, promised is a second", took)
		}
		if st := l.Status(); !st.Following || st.Change != 9 || st.By != "ann@ops" {
			t.Errorf("%+v", st)
		}
	}
	if !kept.RemindersPaused["summer"] || kept.ReminderGrace != time.Hour {
		t.Errorf("settings that were handed out have changed: %+v", kept)
	}
	stream, err := server.JetStream(t).Stream(t.Context(), topology.SettingsStream)
	if err != nil || !topology.GrowsOnly(stream.CachedInfo().Config) {
		t.Errorf("%+v, %v", stream, err)
	}
}

// TestTheLastGoodValueStays after any bad change; an ignored change is counted once, also when all is folded again.
func TestTheLastGoodValueStays(t *testing.T) {
	l := newLog(t)
	_, changed := l.live.Current()
	l.add(changeKey(1), batch(200))
	<-changed
	<-l.live.Ready()
	_, changed = l.live.Current()
	for i, bad := range []struct{ key, value string }{
		{changeKey(2), batch(0)},
		{changeKey(3), `{"setting":"reminder.colour","value":"red","was":"default","by":"newer","at":"2026-11-27T12:00:00Z"}`},
		{changeKey(4), "nonsense"},
		{"change.latest", batch(3)},
	} {
		l.add(bad.key, bad.value)
		l.measures(float64(i+2), float64(i+1))
		if now, _ := l.live.Current(); now.ReminderBatch != 200 {
			t.Errorf("%s is in force: %+v", bad.value, now)
		}
	}
	l.again()
	l.measures(5, 4)
	select {
	case <-changed:
		t.Error("nothing was changed, and a change was reported")
	default:
	}
	l.add(changeKey(5), batch(300))
	<-changed
	if now, _ := l.live.Current(); now.ReminderBatch != 300 || l.live.Status().Ignored != 4 {
		t.Errorf("%+v, %+v", now, l.live.Status())
	}
}

// TestALossTakesNothingOutOfForce: neither a bucket that is missing, nor an empty one or one without a valid change; the first
// change in that begins a new history. The status has the reason.
func TestALossTakesNothingOutOfForce(t *testing.T) {
	l := newLog(t)
	l.add(changeKey(1), batch(200))
	before, changed := l.live.Current()
	f := (*fold)(l.live)
	for _, trouble := range []struct{ err, shown error }{
		{changelog.ErrMissing, errMissing}, {changelog.ErrMissing, errMissing}, {changelog.ErrDisconnected, changelog.ErrDisconnected}, {errEmpty, errEmpty},
	} {
		f.Trouble(trouble.err)
		if st := l.live.Status(); st.Following || st.Error != trouble.shown.Error() || st.Change != 1 {
			t.Errorf("%v: %+v", trouble.err, st)
		}
	}
	f.Begin()
	l.current(true, errEmpty)
	f.Apply(changelog.Message{Key: changeKey(1), Value: []byte("nonsense"), Revision: 1})
	l.current(true, errEmpty)
	if now, _ := l.live.Current(); now != before {
		t.Errorf("%+v", now)
	}
	f.Apply(changelog.Message{Key: changeKey(2), Value: []byte(batch(9)), Revision: 2})
	l.current(true, nil)
	<-changed
	if now, _ := l.live.Current(); now.ReminderBatch != 9 {
		t.Errorf("%+v", now)
	}
	if st := l.live.Status(); !st.Following || st.Error != "" || st.Change != 2 {
		t.Errorf("%+v", st)
	}
}
