package registry

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

func fold() *Fold[*lines, line] { return (&Registry[*lines, line]{spec: spec}).Fold() }

func TestNumbers(t *testing.T) {
	for _, n := range []uint64{1, 9, 10, 123456789, 12345678901} {
		if got := number(Key(n)); got != n {
			t.Errorf("%s is read as %d", Key(n), got)
		}
	}
	if first, last := Key(9), Key(10); first != "change.0000000009" || first > last {
		t.Errorf("keys do not sort as changes do: %s, %s", first, last)
	}
	f := fold()
	add := func(n uint64) bool {
		c := Change[line]{Record: line{"x"}, By: "ann", At: time.Now()}
		streamtest.Must(t, c.Encode())
		return f.Apply(Message{Key: Key(n), Value: c.Value}).Ignored == ""
	}
	if f.next() != 1 || !add(1) || f.next() != 2 {
		t.Errorf("%+v", f)
	}
	// A number written by hand, far above the others, is passed over when the numbers arrive there.
	if add(2 + MostAhead) {
		t.Error("a number too far ahead counts")
	}
	if !add(1+MostAhead) || f.next() != 3+MostAhead || f.last != 1+MostAhead {
		t.Errorf("%+v, next %d", f, f.next())
	}
}

// TestWhatIsNotUnderstood stays in the history with the reason, and changes nothing.
func TestWhatIsNotUnderstood(t *testing.T) {
	const good = `{"change":{"text":"x"},"by":"ann","at":"2026-11-27T12:00:00.5+01:00"}`
	change := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	for _, c := range []struct {
		key, value string
		want       string // "" = in force
	}{
		{Key(2), good, ""},
		{Key(1 + MostAhead), good, ""},
		{Key(2 + MostAhead), good, "more than 1000000 above 1,"},
		{Key(2), ``, "not understood"}, {Key(2), `200`, "not understood"}, {Key(2), `null`, "at must be"}, {Key(2), `[]`, "not understood"},
		{Key(2), good[:40], "not understood"},
		{Key(2), good + good, "more text after"},
		{Key(2), change(`"by"`, `"lane":3,"by"`), "newer version"},
		{Key(2), change(`"x"`, `"x","colour":"red"`), "newer version"},
		{Key(2), change(`"x"`, `"kept","colour":"red"`), ""},
		{Key(2), change(`"x"`, `200`), "not understood"},
		{Key(2), change(`"x"`, `""`), "text is empty"},
		{Key(2), change("ann", ""), "by is"},
		{Key(2), change("ann", `ann\u0007`), "by is"},
		{Key(2), change("2026-11-27T12:00:00.5+01:00", "yesterday"), "not understood"},
		{Key(2), change("2026-11-27T12:00:00.5+01:00", "0000-01-01T00:00:00Z"), "at must be"},
		{Key(2), change("2026-11-27T12:00:00.5+01:00", "9999-12-31T23:59:59-23:00"), "at must be"},
		{"change.two", good, "is no number"}, {"change.2", good, "is no number"}, {Key(0), good, "is no number"}, {"", good, "is no number"},
		{"change.-000000001", good, "is no number"}, {"change.00000000001", good, "is no number"}, {"change.9999999999999999999", good, "is no number"},
	} {
		f := fold()
		f.Apply(Message{Key: Key(1), Value: []byte(change(`"x"`, `"first"`)), Revision: 1})
		got := f.Apply(Message{Key: c.key, Value: []byte(c.value), Revision: 2})
		switch {
		case c.want == "" && (got.Ignored != "" || len(f.State.all) != 2 || f.Ignored != 0):
			t.Errorf("%s %s: ignored, %s", c.key, c.value, got.Ignored)
		case c.want != "" && (!strings.Contains(got.Ignored, c.want) || len(f.State.all) != 1 || f.Ignored != 1):
			t.Errorf("%s %s: ignored %q, want %q", c.key, c.value, got.Ignored, c.want)
		}
		if len(f.Changes) != 2 || !reflect.DeepEqual(f.Last(), got) || got.Revision != 2 {
			t.Errorf("%+v", f.Changes)
		}
	}
	f := fold()
	if c := f.Apply(Message{Key: Key(7), Deleted: true}); !strings.Contains(c.Ignored, "a deletion") || f.next() != 8 {
		t.Errorf("%+v, the next number is %d", c, f.next())
	}
}

func TestAChangeIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Change[line]{
			N: rapid.Uint64Range(1, MostAhead).Draw(t, "n"), Record: line{"_" + rapid.String().Draw(t, "text")},
			By: rapid.SampledFrom([]string{"ann@ops-1", `<bob> & "co"`, "Zoë", strings.Repeat("x", 64)}).Draw(t, "by"),
			At: time.Unix(rapid.Int64Range(0, 1<<37).Draw(t, "s"), rapid.Int64Range(0, 999999999).Draw(t, "ns")).UTC(),
		}
		if err := want.Encode(); err != nil {
			t.Fatal(err)
		}
		if got := fold().Apply(Message{Key: Key(want.N), Value: want.Value}); !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, written was %+v", got, want)
		}
	})
}

func FuzzApply(f *testing.F) {
	f.Add(Key(1), []byte(`{"change":{"text":"x"},"by":"ann@ops","at":"2026-11-27T12:00:00.5+01:00"}`))
	f.Add("change.x", []byte(`{"at":"0000-01-01T00:00:00Z"}`))
	f.Add(Key(1), []byte(`{"change":{"text":"\ud800"},"by":"\u2028","at":"9999-12-31T23:59:59-23:00"}`))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		folded := fold()
		c := folded.Apply(Message{Key: key, Value: value})
		if _, err := json.Marshal(c); err != nil {
			t.Fatalf("it can not be shown: %v", err)
		}
		if c.Ignored != "" {
			if len(folded.State.all) != 0 {
				t.Fatalf("ignored, %s, and in force all the same", c.Ignored)
			}
			return
		}
		again := c
		streamtest.Must(t, again.Encode())
		if read := fold().Apply(Message{Key: key, Value: again.Value}); !reflect.DeepEqual(read, again) {
			t.Fatalf("%+v, read again %+v", again, read)
		}
	})
}
