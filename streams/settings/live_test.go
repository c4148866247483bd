package settings

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/access/natsauth/authtest"
	"github.com/seed-4a2410e3/scrip/streams/registry"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// batch is a change of reminder.batch, as the bucket has it.
func batch(n int) []byte {
	return fmt.Appendf(nil, `{"change":[{"setting":"reminder.batch","value":"%d","was":"default"}],"by":"ann@ops","at":"2026-11-27T12:00:00Z"}`, n)
}

// TestAChangeIsInForce at another server within a second; package registry shows it for clusters, lost connections and lost
// buckets. Settings that were handed out before do not change.
func TestAChangeIsInForce(t *testing.T) {
	server := streamtest.Start(t, authtest.Servers(1))
	s := open(t, server.JetStream(t))
	l := watch(t, open(t, server.JetStream(t)))
	<-l.Ready() // the bucket was missing, and it made it
	if now, _ := l.Current(); !now.equal(Default()) {
		t.Errorf("%+v", now)
	}
	set(t, s, "reminder.grace", "1h")
	set(t, s, "reminder.pause.summer", "true")
	holds(t, l, "the grace and the pause", func(s *Settings) bool { return s.ReminderGrace == time.Hour && s.RemindersPaused["summer"] })
	kept, _ := l.Current()
	set(t, s, "reminder.pause.summer", "false")
	set(t, s, "reminder.grace", ToDefault)
	answered := time.Now()
	holds(t, l, "both are taken back", func(s *Settings) bool {
		return !s.RemindersPaused["summer"] && s.ReminderGrace == Default().ReminderGrace
	})
	if took := time.Since(answered); took > time.Second {
		t.Errorf("in force %s after the change was answered, promised is a second", took)
	}
	if st := l.Status(); !st.Following || st.Change != 4 || st.By != "ann@ops" {
		t.Errorf("%+v", st)
	}
	if !kept.RemindersPaused["summer"] || kept.ReminderGrace != time.Hour {
		t.Errorf("settings that were handed out have changed: %+v", kept)
	}
}

// TestTheLastGoodValueStays after any bad change, which is measured.
func TestTheLastGoodValueStays(t *testing.T) {
	s := open(t, streamtest.Start(t, authtest.Servers(1)).JetStream(t))
	l := watch(t, s)
	_, changed := l.Current()
	set(t, s, "reminder.batch", "200")
	<-changed
	_, changed = l.Current()
	for n, bad := range []string{string(batch(0)), strings.Replace(string(batch(1)), "reminder.batch", "reminder.colour", 1), "nonsense"} {
		streamtest.Must(t, s.registry.Add(t.Context(), registry.Key(uint64(n+2)), []byte(bad)))
	}
	set(t, s, "reminder.batch", "300")
	<-changed // the bad ones were no change
	if now, _ := l.Current(); now.ReminderBatch != 300 || l.Status().Ignored != 3 {
		t.Errorf("%+v, %+v", now, l.Status())
	}
	measures(t, l, 5, 3)
}
