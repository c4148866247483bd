package settings

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/registry"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// batch is a change of reminder.batch, as the bucket has it.
func batch(n int) []byte {
	return fmt.Appendf(nil, `{"change":{"setting":"reminder.batch","value":"%d","was":"default"},"by":"ann@ops","at":"2026-11-27T12:00:00Z"}`, n)
}

// TestAChangeIsInForceAtEveryServer, on a log that others make with the bucket; package registry shows it for clusters, lost
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
	if err != nil || !stream.CachedInfo().Config.DenyPurge {
		t.Errorf("%+v, %v", stream, err)
	}
}

// TestTheLastGoodValueStays after any bad change, which is measured.
func TestTheLastGoodValueStays(t *testing.T) {
	s := open(t, streamtest.Start(t).JetStream(t))
	l := watch(t, s)
	_, changed := l.Current()
	set(t, s, "reminder.batch", "200")
	<-changed
	_, changed = l.Current()
	for n, bad := range []string{string(batch(0)), strings.Replace(string(batch(1)), "reminder.batch", "reminder.colour", 1), "nonsense"} {
		if err := s.registry.Add(t.Context(), registry.Key(uint64(n+2)), []byte(bad)); err != nil {
			t.Fatal(err)
		}
	}
	set(t, s, "reminder.batch", "300")
	<-changed // the bad ones were no change
	if now, _ := l.Current(); now.ReminderBatch != 300 || l.Status().Ignored != 3 {
		t.Errorf("%+v, %+v", now, l.Status())
	}
	measures(t, l, 5, 3)
}
