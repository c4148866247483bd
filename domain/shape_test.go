package domain

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// shapes holds lines to the tables that documents are made from: a line has what its row requires, and nothing that the row lacks.
// The key of seen is a row and a field.
type shapes struct{ seen map[[2]string]bool }

var allShapes = shapes{map[[2]string]bool{}}

// outcome checks the outcome line of a command.
func (s *shapes) outcome(t failer, c wire.CommandType, line []byte, out *wire.Outcome) {
	if !out.Refused() {
		s.line(t, c.String(), c.DescribeOutcome(), line)
		return
	}
	if !slices.Contains(c.Refusals(), out.Refusal) {
		t.Fatalf("%s is refused as %s, which its row of answers does not have", c, out.Refusal)
	}
}

// event checks an event line.
func (s *shapes) event(t failer, e wire.EventType, line []byte) {
	s.line(t, e.String(), append(e.Describe(), wire.Description{Name: "type", OneOf: []string{e.String()}}), line)
}

func (s *shapes) line(t failer, row string, of []wire.Description, line []byte) {
	var has map[string]any
	if err := json.Unmarshal(line, &has); err != nil {
		t.Fatal(err)
	}
	for _, f := range of {
		v, there := has[f.Name]
		if !there && f.Required {
			t.Fatalf("%s lacks %s, which its row requires: %s", row, f.Name, line)
		}
		if text, is := v.(string); is && f.OneOf != nil && !slices.Contains(f.OneOf, text) {
			t.Fatalf("%s has %s %s, which is none of %s", row, f.Name, text, f.OneOf)
		}
		if delete(has, f.Name); there {
			s.seen[[2]string{row, f.Name}] = true
		}
	}
	for name := range has {
		t.Fatalf("%s has %s, which its row lacks: %s", row, name, line)
	}
}

// complete fails for fields that rows allow and no line had.
func (s *shapes) complete(t *testing.T) {
	check := func(row string, of []wire.Description) {
		for _, f := range of {
			if f.Name != "by" && f.Name != "request_id" && !s.seen[[2]string{row, f.Name}] {
				t.Errorf("no %s has %s: its row allows too much, or the commands here too little", row, f.Name)
			}
		}
	}
	for c := range wire.Commands() {
		check(c.String(), c.DescribeOutcome())
	}
	for e := range wire.Events() {
		if e.Spec().About != wire.AboutLane && e != wire.RemindersDue { // which these commands do not make, or not all kinds of
			check(e.String(), e.Describe())
		}
	}
}
