package settings

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-4a2410e3/scrip/streams/registry"
)

var noon = time.Date(2026, 11, 27, 12, 0, 0, 123456789, time.UTC)

// model is a fold so simple that it is right: the last value that makes sense wins.
type model map[string]string

func (m model) settings(defaults *Settings) *Settings {
	s := defaults.clone()
	for name, value := range m {
		k, _ := find(name)
		if value == ToDefault {
			value = k.text(defaults)
		}
		if _, err := k.put(s, value); err != nil {
			panic(err)
		}
	}
	return s
}

var (
	drawSetting = rapid.SampledFrom([]string{"reminder.batch", "reminder.rate", "reminder.concurrency", "reminder.grace",
		"expiry.pause.summer", "expiry.pause.winter", "reminder.pause.summer", "reminder.pause.winter", "reminder.colour", "expiry.pause.", ""})
	drawValue = rapid.OneOf(rapid.SampledFrom([]string{"true", "false", ToDefault, "1", "64", "500", "0", "501", "-1", "1s", "15m", "9000h", "", "x"}), rapid.StringN(0, 4, 8))
)

func TestTheFoldIsTheLastValueThatMadeSense(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		defaults := Default()
		defaults.ReminderGrace = time.Duration(rapid.Int64Range(1, 8760*3600).Draw(t, "grace")) * time.Second
		defaults.RemindersPaused = map[string]bool{"winter": rapid.Bool().Draw(t, "paused")}
		s, want := newState(defaults), model{}
		before := s.Settings()
		n := rapid.IntRange(0, 30).Draw(t, "changes")
		for i := range n {
			setting, value := drawSetting.Draw(t, "setting"), drawValue.Draw(t, "value")
			c := record{{Setting: "reminder.rate", Value: "7"}, {Setting: setting, Value: value, Was: "?"}}
			was := s.Settings()
			err := s.take(&registry.Change[record]{N: uint64(i + 1), Record: c, By: fmt.Sprint(i), At: noon})
			if _, bad := check(setting, value); bad == nil {
				want["reminder.rate"] = "7"
				want[setting] = value
			} else if err == nil || !s.Settings().equal(was) {
				t.Fatalf("%s %q was not ignored", setting, value)
			}
			now := s.Settings()
			if err := now.Validate(); err != nil {
				t.Fatalf("what is in force makes no sense: %v", err)
			}
			if model := want.settings(defaults); !now.equal(model) {
				t.Fatalf("after %s %q: %+v, want %+v", setting, value, now, model)
			}
		}
		if !before.equal(newState(defaults).Settings()) {
			t.Fatal("settings that were handed out have changed")
		}
		// The values shown are those in force.
		for _, v := range s.Values() {
			value, set := want[v.Setting]
			if v.Default != (!set || value == ToDefault) || v.Default != (v.By == "" || value == ToDefault) {
				t.Fatalf("%+v, set %q", v, value)
			}
			if k, err := find(v.Setting); err != nil || string(k.json(k.text(s.Settings()))) != string(v.Value) {
				t.Fatalf("%+v is not in force: %v", v, err)
			}
		}
	})
}
