package settings

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 11, 27, 12, 0, 0, 123456789, time.UTC)

func TestWhatIsNotUnderstoodStaysInTheHistoryAndChangesNothing(t *testing.T) {
	const good = `{"setting":"reminder.batch","value":"200","was":"default","by":"ann@ops","at":"2026-11-27T12:00:00Z"}`
	for _, c := range []struct{ name, key, value, want string }{
		{"no JSON", changeKey(2), `200`, "not understood"},
		{"nothing", changeKey(2), ``, "not understood"},
		{"cut off", changeKey(2), good[:40], "not understood"},
		{"two", changeKey(2), good + good, "more text after"},
		{"a field of a newer version", changeKey(2), strings.Replace(good, `"by"`, `"lane":3,"by"`, 1), "newer version"},
		{"a setting of a newer version", changeKey(2), strings.Replace(good, "reminder.batch", "reminder.colour", 1), "there is no setting"},
		{"out of bounds", changeKey(2), strings.Replace(good, "200", "501", 1), "from 1 to 500"},
		{"a number as value", changeKey(2), strings.Replace(good, `"200"`, `200`, 1), "not understood"},
		{"nobody", changeKey(2), strings.Replace(good, "ann@ops", "", 1), "by is"},
		{"somebody who can not be shown", changeKey(2), strings.Replace(good, "ann@ops", `ann\u0007`, 1), "by is"},
		{"no time", changeKey(2), strings.Replace(good, "2026-11-27T12:00:00Z", "yesterday", 1), "RFC 3339"},
		{"a key that is no number", "change.two", good, "is no number of a change"},
		{"a number without zeros", "change.2", good, "is no number of a change"},
		{"number zero", changeKey(0), good, "is no number of a change"},
		{"a number behind which there is none", "change.9999999999999999999", good, "is no number of a change"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newState(Default())
			s.apply(Change{N: 1, Revision: 1, Setting: "reminder.batch", Value: "300", Was: ToDefault, By: "bob", At: noon})
			change := parse(c.key, []byte(c.value), false)
			change.Revision = 2
			got := s.apply(change)
			if !strings.Contains(got.Ignored, c.want) || s.Ignored != 1 || s.Revision != 2 {
				t.Errorf("ignored %q (%d of them), want %q", got.Ignored, s.Ignored, c.want)
			}
			if n := s.Settings().ReminderBatch; n != 300 {
				t.Errorf("batch %d, what held before was 300", n)
			}
			if v, err := s.Value("reminder.batch"); err != nil || v.By != "bob" || v.Change != 1 {
				t.Errorf("%+v, %v", v, err)
			}
			if len(s.Changes()) != 2 || s.Changes()[1].Ignored == "" {
				t.Errorf("history %+v", s.Changes())
			}
		})
	}
	deleted := parse(changeKey(7), nil, true)
	if s := newState(Default()); s.apply(deleted).Ignored == "" || s.Last != 7 {
		t.Errorf("a deletion: %+v, the next number is %d", deleted, s.Last+1)
	}
}

// A number written by hand that lies far above the others neither holds nor takes the numbers away that follow.
func TestANumberFarAheadIsPassedOver(t *testing.T) {
	s := newState(Default())
	fold := func(n uint64, value string) Change {
		return s.apply(Change{N: n, Revision: s.Revision + 1, Setting: "reminder.batch", Value: value, Was: ToDefault, By: "bob", At: noon})
	}
	fold(1, "300")
	key := "change.999999999999999999"
	if c := parse(key, []byte(`{"setting":"reminder.batch","value":"9","was":"default","by":"hand","at":"2026-11-27T12:00:00Z"}`), false); c.Ignored != "" || fold(c.N, c.Value).Ignored == "" {
		t.Errorf("%s is not ignored", key)
	}
	if c := fold(2+mostAhead, "8"); !strings.Contains(c.Ignored, "more than 1000000 above 1,") {
		t.Errorf("%+v", c)
	}
	if s.Last != 1 || s.Next() != 2 || s.Ignored != 2 || s.Settings().ReminderBatch != 300 {
		t.Errorf("the last is %d, %d ignored", s.Last, s.Ignored)
	}
	// One that lies as far ahead as it may, and behind which one was taken before, is followed by the first that is free.
	if c := fold(1+mostAhead, "7"); c.Ignored != "" || s.Last != 1+mostAhead || s.Next() != 3+mostAhead {
		t.Errorf("%+v, the last is %d, the next %d", c, s.Last, s.Next())
	}
}

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
		ignored := 0
		n := rapid.IntRange(0, 30).Draw(t, "changes")
		for i := range n {
			c := Change{N: uint64(i + 1), Revision: uint64(2*i + 1), Setting: drawSetting.Draw(t, "setting"), Value: drawValue.Draw(t, "value"), Was: "?", By: fmt.Sprint(i), At: noon}
			was := s.Settings()
			got := s.apply(c)
			if _, err := Check(c.Setting, c.Value); err == nil {
				want[c.Setting] = c.Value
			} else if ignored++; got.Ignored == "" || !s.Settings().equal(was) {
				t.Fatalf("%s %q was not ignored", c.Setting, c.Value)
			}
			now := s.Settings()
			if err := now.Validate(); err != nil {
				t.Fatalf("what is in force makes no sense: %v", err)
			}
			if model := want.settings(defaults); !now.equal(model) {
				t.Fatalf("after %s %q: %+v, want %+v", c.Setting, c.Value, now, model)
			}
		}
		if s.Ignored != ignored || len(s.Changes()) != n || s.Last != uint64(n) {
			t.Fatalf("%d of %d ignored, want %d", s.Ignored, len(s.Changes()), ignored)
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
			if k, err := find(v.Setting); err != nil || k.text(s.Settings()) != v.Value {
				t.Fatalf("%+v is not in force: %v", v, err)
			}
		}
		// Folding the history again, as a server that starts does, gives the same.
		again := newState(defaults)
		for _, c := range s.Changes() {
			c.Ignored = ""
			again.apply(c)
		}
		if !again.Settings().equal(s.Settings()) || !reflect.DeepEqual(again.Changes(), s.Changes()) {
			t.Fatal("folded again, it is something else")
		}
	})
}

func TestAChangeIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Change{
			N: rapid.Uint64Range(1, 1e18-1).Draw(t, "n"), Setting: drawSetting.Draw(t, "setting"), Value: rapid.String().Draw(t, "value"), Was: rapid.String().Draw(t, "was"),
			By: rapid.SampledFrom([]string{"ann@ops-1", "<bob> & \"co\"", "Zoë", strings.Repeat("x", mostBy)}).Draw(t, "by"),
			At: time.Unix(rapid.Int64Range(0, 1<<37).Draw(t, "s"), rapid.Int64Range(0, 999999999).Draw(t, "ns")).UTC(),
		}
		value, err := want.encode()
		if err != nil {
			t.Fatal(err)
		}
		if got := parse(changeKey(want.N), value, false); got != want {
			t.Fatalf("%+v, written was %+v as %s", got, want, value)
		}
	})
	keys := []string{changeKey(1), changeKey(9), changeKey(10), changeKey(123456789)}
	if !slices.IsSorted(keys) || keys[0] != "change.0000000001" {
		t.Errorf("keys do not sort as changes do: %v", keys)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(changeKey(1), []byte(`{"setting":"reminder.batch","value":"200","was":"500","by":"ann@ops","at":"2026-11-27T12:00:00.5+01:00"}`))
	f.Add("change.x", []byte(`{"at":"0000-01-01T00:00:00Z"}`))
	f.Add(changeKey(1), []byte(`{"setting":"expiry.pause.\u0000","value":"\ud800","was":"","by":"\u2028","at":"9999-12-31T23:59:59-23:00"}`))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		c := parse(key, value, false)
		s := newState(Default())
		got := s.apply(c)
		if err := s.Settings().Validate(); err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(got); err != nil {
			t.Fatalf("it can not be shown: %v", err)
		}
		if got.Ignored != "" {
			if !s.Settings().equal(Default()) {
				t.Fatalf("ignored, %s, and in force all the same", got.Ignored)
			}
			return
		}
		written, err := c.encode()
		if err != nil {
			t.Fatal(err)
		}
		if again := parse(changeKey(c.N), written, false); again != c {
			t.Fatalf("%+v, read again %+v", c, again)
		}
	})
}
