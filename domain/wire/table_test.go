package wire

import (
	"bytes"
	"encoding/json"
	"hash/fnv"
	"os"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestEveryCommandHasARow: a command without a name, a status or a way to send it is not finished.
func TestEveryCommandHasARow(t *testing.T) {
	names := map[string]CommandType{}
	for c := range Commands() {
		s := c.Spec()
		if s.Name == "" || s.Status == "" || len(s.Required) == 0 {
			t.Errorf("command %d: %+v", c, s)
		}
		if other, taken := names[s.Name]; taken {
			t.Errorf("%s is command %d and %d", s.Name, other, c)
		}
		names[s.Name] = c
		if (s.Endpoint == "") != (s.Scope == ScopeScheduler) {
			t.Errorf("%s comes in scope %d and has the endpoint %q", c, s.Scope, s.Endpoint)
		}
		if s.NamesCampaign() && !required[c].has(fCampaign) {
			t.Errorf("%s takes its campaign from the subject and does not require it", c)
		}
		if got := CommandNamed([]byte(s.Name)); got != c {
			t.Errorf("%s is read as %q", s.Name, got)
		}
		for rest := allowed[c] &^ fields(fType); rest != 0; rest &= rest - 1 {
			cmd := Command{Type: c}
			if f := rest.first(); cmd.at(f) == nil {
				t.Errorf("%s: a command has no room for %s", c, f)
			}
		}
	}
	if NoCommand.Known() || CommandNamed(nil) != NoCommand || CommandNamed([]byte("Claim")) != NoCommand {
		t.Error("what is no command is taken for one")
	}
}

// TestEveryEventHasARow: readers choose by these columns what to do with an event, so none may be left out.
func TestEveryEventHasARow(t *testing.T) {
	accepted := map[CommandType]EventType{}
	names := map[string]bool{}
	for e := NoEvent + 1; e < numEvents; e++ {
		s := e.Spec()
		if s.Name == "" || s.About == 0 || s.Change == "" {
			t.Errorf("event %d has no complete row: %+v", e, s)
		}
		if names[s.Name] {
			t.Errorf("two events are named %s", s.Name)
		}
		names[s.Name] = true
		if got := EventNamed([]byte(s.Name)); got != e {
			t.Errorf("%s is read as %q", s.Name, got)
		}
		if other, twice := accepted[s.Command]; s.Command != NoCommand && twice {
			t.Errorf("%s and %s both accept %s", other, e, s.Command)
		}
		accepted[s.Command] = e
		if (s.About == AboutCoupon || s.About == AboutReminder) && s.Change == "-" {
			t.Errorf("%s has no name in histories", e)
		}
		for _, f := range s.Fields {
			if (&Event{Type: e}).at(f) == nil {
				t.Errorf("%s: an event has no room for %s", e, f)
			}
		}
	}
	for c := range Commands() {
		if _, ok := accepted[c]; !ok {
			t.Errorf("no event accepts %s", c)
		}
	}
	last := NoEvent
	for e := range Events() {
		if e != last+1 {
			t.Errorf("%s follows %s", e, last)
		}
		last = e
	}
	if last+1 != ReminderDue || ReminderDue+1 != numEvents {
		t.Error("a new event goes before reminder.due, which is not on event streams")
	}
}

func TestEveryFieldHasARow(t *testing.T) {
	for f := fUnknown + 1; f < numFields; f++ {
		if f.String() == "" {
			t.Errorf("field %d has no name", f)
		}
		if want := f; f != fCodeList && f != fRList && fieldNamed([]byte(f.String())) != want {
			t.Errorf("%s is read as %q", f, fieldNamed([]byte(f.String())))
		}
	}
	if fieldNamed([]byte("colour")) != fUnknown || fieldNamed(nil) != fUnknown {
		t.Error("what is no field is taken for one")
	}
}

// TestHandWrittenPathsAgreeWithTheTable writes and reads random events and outcomes in both ways.
func TestHandWrittenPathsAgreeWithTheTable(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		e := drawEvent(rt)
		line := e.AppendJSON(nil)
		byTable := []byte(`{"type":"` + e.Type.Spec().Name + `"`)
		for _, f := range []Field{fCampaign, fAt, fID} {
			byTable = appendValue(byTable, f, e.at(f), nil)
		}
		byTable = appendValue(e.appendFields(byTable, nil), fBy, e.at(fBy), nil)
		byTable = append(appendValue(byTable, fRequestID, e.at(fRequestID), nil), '}')
		if !bytes.Equal(line, byTable) {
			rt.Fatalf("an event is written as\n%s\nby the table as\n%s", line, byTable)
		}
		var hand, table Event
		hand.Type, table.Type = e.Type, e.Type
		o := object{data: line}
		for {
			key, raw, done, err := o.next()
			if err != nil {
				rt.Fatal(err)
			}
			if done {
				break
			}
			if string(key) == "type" {
				continue
			}
			if string(key) == "expires_at" && e.Type.Spec().About == AboutCampaign {
				continue // read by hand into both places; ParseView keeps that of the type
			}
			if err := hand.read(key, raw, simple(line)); err != nil {
				rt.Fatalf("%s: %v", key, err)
			}
			if err := table.readField(key, raw); err != nil {
				rt.Fatalf("%s by the table: %v", key, err)
			}
		}
		table.Settings.ExpiresAt, hand.Settings.ExpiresAt = 0, 0
		if a, b := hand.AppendJSON(nil), table.AppendJSON(nil); !bytes.Equal(a, b) {
			rt.Fatalf("%s is read as\n%s\nby the table as\n%s", line, a, b)
		}

		out := drawOutcome(rt)
		line = out.AppendJSON(nil)
		byTable = nil
		for _, f := range outcomeFields {
			if f != fBefore || out.Kind != "" {
				byTable = appendValue(byTable, f, out.at(f), nil)
			}
		}
		byTable = append([]byte{'{'}, append(bytes.TrimPrefix(byTable, []byte{','}), '}')...)
		if !bytes.Equal(line, byTable) {
			rt.Fatalf("an outcome is written as\n%s\nby the table as\n%s", line, byTable)
		}
	})
}

// TestLinesHaveOnlyFieldsOfTheTable: an event is written with the fields that its row lists, in that order.
func TestLinesHaveOnlyFieldsOfTheTable(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		e := drawEvent(rt)
		next := append(append(list(fType, fCampaign, fAt, fID), e.Type.Spec().Fields...), fBy, fRequestID)
		o := object{data: e.AppendJSON(nil)}
		for {
			key, _, done, err := o.next()
			if err != nil {
				rt.Fatal(err)
			}
			if done {
				return
			}
			for len(next) > 0 && next[0].String() != string(key) {
				next = next[1:]
			}
			if len(next) == 0 {
				rt.Fatalf("%s of %s is not in the table, or not at this place", key, e.Type)
			}
		}
	})
}

// TestMayChangeDue: a line that is not parsed has no event that the scheduler needs.
func TestMayChangeDue(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		e := drawEvent(rt)
		line := e.AppendJSON(nil)
		want := e.Type.Spec().Due && (e.Type != CouponClaimed || e.ExpiresAt != 0)
		if got := MayChangeDue(line); got != want && (got != true || e.Type != CouponClaimed) { // a claim's attributes may look like an expiry
			rt.Fatalf("%s: %v, want %v", line, got, want)
		}
		if !MayChangeDue(append([]byte{' '}, line...)) {
			rt.Fatalf("a line that is written in another way is not parsed: %s", line)
		}
	})
	for _, line := range []string{``, `{`, `{"type":"`, `{"type":"coupon.redeemed`, `{"type":"coupon.gilded","campaign":"s"}`} {
		if !MayChangeDue([]byte(line)) {
			t.Errorf("%q is not parsed", line)
		}
	}
}

// TestWritingAllocatesNothing: a line is appended to the caller's buffer, so its parts stay off the heap.
func TestWritingAllocatesNothing(t *testing.T) {
	lines, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 0, MaxLine)
	for line := range bytes.Lines(lines) {
		var e Event
		if err := ParseEvent(bytes.TrimSpace(line), &e); err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(10, func() {
			copied := e
			buf = copied.AppendJSON(buf[:0])
		}); n != 0 {
			t.Errorf("writing %s allocates %v times", e.Type, n)
		}
	}
}

func TestScopes(t *testing.T) {
	for c := range Commands() {
		of := c.Spec().Scope
		for s, want := range map[Scope]bool{
			ScopeProducer: of == ScopeProducer, ScopeOperator: of == ScopeOperator,
			ScopeTrusted: of == ScopeProducer || of == ScopeOperator, ScopeScheduler: of == ScopeScheduler,
		} {
			if s.Allows(c) != want {
				t.Errorf("%s in scope %d: %v", c, s, !want)
			}
		}
	}
	for _, s := range []Scope{ScopeProducer, ScopeOperator, ScopeTrusted, ScopeScheduler} {
		if s.Allows(NoCommand) {
			t.Errorf("scope %d allows what is no command", s)
		}
	}
}

// TestTakes is what the service's description shows.
func TestTakes(t *testing.T) {
	for c, want := range map[CommandType]string{
		CreateCampaign: "campaign, codes, and any other setting", UpdateCampaign: "campaign, if_version, and any setting",
		Claim: "customer_id, attributes", Remind: "customer_id, kind, before, zone", Redeem: "code, order_id, customer_id, campaign, n",
		Void: "code, reason, campaign, n", Extend: "code, expires_at, campaign, n", ImportCodes: "campaign, codes, weak_codes", EndCampaign: "campaign, if_version",
	} {
		if got := c.Spec().Takes(); got != want {
			t.Errorf("%s takes %q, want %q", c, got, want)
		}
	}
}

// TestOutcomeIsReadByPackageJSONToo: its field names are those of the table.
func TestOutcomeIsReadByPackageJSONToo(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		out := drawOutcome(rt)
		var plain map[string]any
		if err := json.Unmarshal(out.AppendJSON(nil), &plain); err != nil {
			rt.Fatal(err)
		}
		for key := range plain {
			if fieldNamed([]byte(key)) == fUnknown {
				rt.Fatalf("%s is not in the table (%s)", key, strings.TrimSpace(string(out.AppendJSON(nil))))
			}
		}
	})
}

// TestLaneOfIsWhatNATSComputes: partition(lanes, 1) of NATS is FNV-1a of the token.
func TestLaneOfIsWhatNATSComputes(t *testing.T) {
	for i := range 1000 {
		name, lanes := strings.Repeat("Summer_2026-", i%6)+strconv.Itoa(i), 1+i%64
		h := fnv.New32a()
		h.Write([]byte(name))
		if got, want := LaneOf(name, lanes), int(h.Sum32()%uint32(lanes)); got != want {
			t.Fatalf("LaneOf(%s, %d) = %d, want %d", name, lanes, got, want)
		}
	}
}
