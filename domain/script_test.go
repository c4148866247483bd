package domain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// A script has one command a line: what is given, and after => the expected answer.
//
//	0    create_campaign codes=2 expires_at=+1h
//	1m   claim customer_id=ann                    => claimed n=1 expires_at=+1h
//	1h   redeem code=$1 order_id=o1               => expired
//
// First the time since the start, then the type and its fields; times beginning with + are since the start too, and $2
// is the code of coupon 2 of the campaign (s if none is given; $t2 is that of t). $v is the version of s now, $v0 the one at the
// first such word. A line without => must not be refused. Behind =>
// is the status or refusal, then fields of the answer, "repeat" if it must be one, and events=… for the types of the
// events made, without their common beginning.
type script struct {
	t     *testing.T
	lane  *Lane
	step  *Step
	codes map[string]string
	ids   int
	last  map[string]any // the answer before
}

func newScript(t *testing.T) *script {
	l := testLane()
	return &script{t: t, lane: l, step: NewStep(l), codes: make(map[string]string)}
}

func (s *script) run(text string) {
	s.t.Helper()
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			s.line(line)
		}
	}
}

func (s *script) line(line string) {
	s.t.Helper()
	given, want, checked := strings.Cut(line, "=>")
	words := strings.Fields(given)
	offset, err := time.ParseDuration(words[0])
	if err != nil {
		s.t.Fatalf("%s: %v", line, err)
	}
	s.ids++
	cmd := map[string]any{"id": fmt.Sprint("script", s.ids), "type": words[1]}
	kind := wire.CommandNamed([]byte(words[1]))
	if !kind.HasCode() {
		cmd["campaign"] = "s"
	}
	for _, w := range words[2:] {
		name, value, _ := strings.Cut(w, "=")
		cmd[name] = s.value(kind, name, value)
	}
	raw, err := json.Marshal(cmd)
	if err != nil {
		s.t.Fatal(err)
	}
	scope := wire.ScopeTrusted
	if kind == wire.Expire || kind == wire.RemindDue {
		scope = wire.ScopeScheduler
	}
	if !s.step.Fits(raw, "") {
		s.step.Close()
		s.step.Reset()
	}
	had := len(s.step.Events)
	reply := s.step.Add(Message{Sequence: 1, Scope: scope, Payload: raw}, start.Add(offset), nil)
	s.last = map[string]any{}
	if err := json.Unmarshal(reply, &s.last); err != nil {
		s.t.Fatalf("%s: %s: %v", line, reply, err)
	}
	if s.last["status"] == wire.StatusClaimed {
		name := s.last["campaign"].(string)
		if name == "s" {
			name = ""
		}
		s.codes[fmt.Sprintf("$%s%v", name, s.last["n"])] = s.last["code"].(string)
	}
	if !checked {
		if s.last["status"] == wire.StatusRefused {
			s.t.Fatalf("%s\n is answered %s", line, reply)
		}
		return
	}
	s.check(line, string(bytes.TrimSpace(reply)), strings.Fields(want), s.step.Events[had:])
}

// value is a field's value as JSON takes it.
func (s *script) value(kind wire.CommandType, name, v string) any {
	switch {
	case v == "null":
		return nil
	case strings.HasPrefix(v, "+"):
		return s.instant(v).String()
	case name == "if_version":
		now, _ := s.lane.Campaign("s")
		if s.codes["$v0"] == "" {
			s.codes["$v0"] = now.Version
		}
		s.codes["$v"] = now.Version
		return s.codes[v]
	case strings.HasPrefix(v, "$"):
		if s.codes[v] == "" {
			s.t.Fatalf("no coupon %s", v)
		}
		return s.codes[v]
	case name == "codes" && kind == wire.ImportCodes:
		return strings.Split(v, ",")
	case name == "codes", name == "per_customer", name == "max_redemptions", name == "reminders", name == "through_r", name == "benefit", name == "weak_codes", name == "n", name == "count":
		return json.RawMessage(v)
	}
	return v
}

func (s *script) instant(v string) wire.Instant {
	d, err := time.ParseDuration(v[1:])
	if err != nil {
		s.t.Fatal(err)
	}
	return start.Add(d)
}

func (s *script) check(line, reply string, want []string, made []byte) {
	s.t.Helper()
	answer, _ := s.last["status"].(string)
	if answer == wire.StatusRefused {
		answer, _ = s.last["refusal"].(string)
		if s.last["message"] == "" {
			s.t.Fatalf("%s\n is refused without a message: %s", line, reply)
		}
	}
	repeat := false
	for i, w := range want {
		name, value, field := strings.Cut(w, "=")
		got := ""
		if v, there := s.last[name]; there {
			got = fmt.Sprint(v)
		}
		switch {
		case i == 0:
			if answer != w {
				s.t.Fatalf("%s\n is answered %s", line, reply)
			}
			continue
		case w == "repeat":
			repeat = true
			continue
		case name == "events":
			got = typesOf(s.t, made)
		case field && strings.HasPrefix(value, "+"):
			value = s.instant(value).String()
		case field && strings.HasPrefix(value, "$"):
			value = s.codes[value]
		case name == "message":
			if !strings.Contains(got, value) {
				s.t.Fatalf("%s\n is answered %s", line, reply)
			}
			continue
		}
		if got != value {
			s.t.Fatalf("%s\n has %s %q, answered %s\nwith events %s", line, name, got, reply, made)
		}
	}
	if got, _ := s.last["repeat"].(bool); got != repeat {
		s.t.Fatalf("%s\n repeat is %v: %s", line, got, reply)
	}
	if repeat && len(made) > 0 {
		s.t.Fatalf("%s\n is a repeat and makes %s", line, made)
	}
}

func typesOf(t testing.TB, made []byte) string {
	t.Helper()
	var types []string
	for line := range bytes.Lines(made) {
		var ev wire.Event
		if err := wire.ParseEvent(line, &ev); err != nil {
			t.Fatal(err)
		}
		_, short, _ := strings.Cut(ev.Type.String(), ".")
		types = append(types, short)
	}
	return strings.Join(types, ",")
}

// stories are run one by one, each on a lane of its own.
func stories(t *testing.T, list map[string]string) {
	for name, text := range list {
		t.Run(name, func(t *testing.T) { newScript(t).run(text) })
	}
}
