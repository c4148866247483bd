package check

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/oracle"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// digest of the step with the firings.
const digest = "0123456789abcdef0123456789abcdef"

const second = wire.Instant(1_000_000)

// t0 is when the log begins, but for that which is read from a stream.
var t0 = wire.At(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))

// firings are two campaigns in one step, 91 s after a base: of s alice and bob (reminders 1 and 2), of z carol and dave (1 and 2).
func firings(base wire.Instant, dropped bool) []wire.Event {
	at := func(seconds wire.Instant) wire.Instant { return base + seconds*second }
	s := wire.Settings{Codes: 3, PerCustomer: 1, MaxRedemptions: 2, OpensAt: at(-1), ExpiresAt: at(100)}
	z := wire.Settings{Codes: 3, PerCustomer: 1, MaxRedemptions: 2, OpensAt: at(100)}
	of := func(campaign, kind string) wire.Event {
		due := wire.Event{Type: wire.RemindersDue, Campaign: campaign, Kind: kind, At: at(91), DueAt: at(90), FromR: 1, ThroughR: 2, Fired: 2}
		if dropped {
			due.Fired, due.Dropped = 0, 2
		}
		return due
	}
	expires := func(r uint64, customer string) wire.Event {
		return wire.Event{Type: wire.ReminderSet, Campaign: "s", At: at(4), ID: "m" + customer, R: r, CustomerID: customer, Kind: wire.KindExpires,
			Before: 10 * time.Second, DueAt: at(90), N: uint32(r)}
	}
	opens := func(r uint64, customer string, before wire.Instant) wire.Event {
		return wire.Event{Type: wire.ReminderSet, Campaign: "z", At: at(5), ID: "m" + customer, R: r, CustomerID: customer, Kind: wire.KindOpens,
			Before: time.Duration(before) * time.Second, DueAt: at(100 - before)}
	}
	return []wire.Event{
		{Type: wire.CampaignCreated, Campaign: "s", At: at(0), ID: "create", Number: 4, Settings: s},
		{Type: wire.CouponClaimed, Campaign: "s", At: at(1), ID: "c1", N: 1, Code: "AAAA-AAAA-AAAA", CustomerID: "alice"},
		{Type: wire.CouponClaimed, Campaign: "s", At: at(2), ID: "c2", N: 2, Code: "BBBB-BBBB-BBBB", CustomerID: "bob"},
		{Type: wire.CouponRedeemed, Campaign: "s", At: at(3), ID: "r1", N: 1, Code: "AAAA-AAAA-AAAA", OrderID: "a", RedeemedCount: 1},
		expires(1, "alice"),
		expires(2, "bob"),
		{Type: wire.CampaignCreated, Campaign: "z", At: at(5), ID: "create", Number: 5, Settings: z},
		opens(1, "carol", 10),
		opens(2, "dave", 10),
		opens(3, "erin", 5),
		opens(4, "frank", 10),
		{Type: wire.ReminderCancelled, Campaign: "z", At: at(7), ID: "m5", R: 4},
		of("s", wire.KindExpires), of("z", wire.KindOpens),
	}
}

// foldFirings folds them; all are in the second line of step 7, but for those of s, which are in the first.
func foldFirings(dropped bool) *Fold {
	f := NewFold()
	f.step = &step{sequence: 7, digest: digest}
	for _, ev := range firings(t0, dropped) {
		f.line = 1
		if ev.Campaign == "z" {
			f.line = 2
		}
		f.Apply("here", &ev)
	}
	return f
}

// line is one of SCRIP_RMD, of one customer.
func line(campaign, customer string) wire.Event {
	kind := wire.KindExpires
	if campaign == "z" {
		kind = wire.KindOpens
	}
	r := map[string]uint64{"alice": 1, "bob": 2, "carol": 1, "dave": 2, "erin": 3, "frank": 4, "x": 1}[customer]
	return wire.Event{Type: wire.ReminderDue, Campaign: campaign, At: t0 + 91*second, Kind: kind, Before: 10 * time.Second, DueAt: t0 + 90*second, CustomerIDs: []string{customer}, Rs: []uint64{r}}
}

// message is one of SCRIP_RMD: its source is the line of step 7 of its last line.
func message(line int, r uint64, lines ...wire.Event) eventlog.Message {
	var payload []byte
	for _, l := range lines {
		payload = append(l.AppendJSON(payload), '\n')
	}
	return eventlog.Message{Sequence: 1, Time: (t0 + 92*second).Time(), Payload: payload,
		Header: eventlog.Header{Owner: "o", Source: eventlog.Source{Sequence: 7, Line: line, LastR: r}, SourceDigest: digest}}
}

func TestRemindersArePublishedOnceAndInOrder(t *testing.T) {
	alice, bob, carol, dave := line("s", "alice"), line("s", "bob"), line("z", "carol"), line("z", "dave")
	couple, renumbered := alice, bob
	couple.CustomerIDs, couple.Rs = []string{"alice", "bob"}, []uint64{1, 2}
	renumbered.Rs = []uint64{3}
	early, other := alice, message(1, 2, alice, bob)
	early.At = t0 + 89*second
	other.SourceDigest = "ff" + digest[2:]
	hasty := message(1, 1, alice)
	hasty.Time = (t0 + 89*second).Time()
	for _, c := range []struct {
		name        string
		published   []eventlog.Message
		want        string // "" = nothing is wrong
		unpublished int
	}{
		{"none yet", nil, "", 4},
		{"all in one message", []eventlog.Message{message(2, 2, alice, bob, carol, dave)}, "", 0},
		{"a list", []eventlog.Message{message(2, 2, couple, carol, dave)}, "", 0},
		{"with another number", []eventlog.Message{message(1, 2, alice, renumbered)}, "the next is s expires 2030-01-01T00:01:30Z bob", 3},
		{"one message per firing", []eventlog.Message{message(1, 2, alice, bob), message(2, 2, carol, dave)}, "", 0},
		{"messages across firings", []eventlog.Message{message(1, 1, alice), message(2, 1, bob, carol), message(2, 2, dave)}, "", 0},
		{"not yet all", []eventlog.Message{message(1, 1, alice)}, "", 3},
		{"twice in a message", []eventlog.Message{message(1, 2, alice, alice, bob)}, "the next is s expires 2030-01-01T00:01:30Z bob (reminder 1 is fired", 3},
		{"twice in two messages", []eventlog.Message{message(1, 2, alice, bob), message(1, 2, bob)}, "carol (reminder 2 is fired", 2},
		{"twice at the end", []eventlog.Message{message(2, 2, alice, bob, carol, dave), message(2, 2, dave)}, "did not fire, or was published before (reminder 2 is fired", 0},
		{"one left out", []eventlog.Message{message(1, 2, bob)}, "the next is s expires 2030-01-01T00:01:30Z alice", 4},
		{"in another order", []eventlog.Message{message(1, 2, carol, dave, alice, bob)}, "the next is s expires 2030-01-01T00:01:30Z alice", 4},
		{"one that is pending", []eventlog.Message{message(2, 3, alice, bob, carol, line("z", "erin"))}, "dave (reminder 3 is pending", 1},
		{"one that was cancelled", []eventlog.Message{message(2, 3, alice, bob, line("z", "frank"))}, "carol (reminder 4 is cancelled", 2},
		{"one that never was", []eventlog.Message{message(2, 2, alice, bob, carol, dave, line("nowhere", "x"))}, "did not fire", 0},
		{"before it is due by its line", []eventlog.Message{message(1, 1, early)}, "before it is due", 3},
		{"before it is due by the stream's time", []eventlog.Message{hasty}, "before it is due", 3},
		{"a source before its lines", []eventlog.Message{message(1, 1, alice, bob)}, "its source is {7 1 1}, that of its last line is {7 1 2}", 2},
		{"a source ahead of its lines", []eventlog.Message{message(2, 1, alice, bob)}, "its source is {7 2 1}", 2},
		{"a source of another log", []eventlog.Message{other}, "its source's digest", 2},
		{"a message without lines", []eventlog.Message{message(1, 1)}, "has no customers", 4},
	} {
		f := foldFirings(false)
		for i := range c.published {
			streamtest.Must(t, f.checkPublished(&c.published[i]))
		}
		f.CheckTallies()
		broken := strings.Join(f.Violations, "\n")
		if c.want == "" && broken != "" || !strings.Contains(broken, c.want) || len(f.expected) != c.unpublished {
			t.Errorf("%s: %q, %d unpublished, want %q, %d", c.name, broken, len(f.expected), c.want, c.unpublished)
		}
	}
	// Dropped reminders are not published.
	f := foldFirings(true)
	m := message(1, 1, alice)
	streamtest.Must(t, f.checkPublished(&m))
	if len(f.Violations) != 1 || !strings.Contains(f.Violations[0], "reminder 1 is dropped") {
		t.Errorf("a dropped reminder is published: %q", f.Violations)
	}
	if want := (oracle.Tally{Set: 6, Cancelled: 1, Dropped: 4, Pending: 1, Published: 1}); f.Tally() != want {
		t.Errorf("%+v, want %+v", f.Tally(), want)
	}
}

// TestALogIsFollowedWhileItGrows: CatchUp folds no message twice, and the result is that of one fold of the whole log.
func TestALogIsFollowedWhileItGrows(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	ctx := t.Context()
	log, err := topology.Ensure(ctx, js, topology.Spec{Lanes: 1, KeyFingerprint: "k", CmdMaxBytes: 16 << 20})
	streamtest.Must(t, err)
	events, reminders := eventlog.Events(js, 0), eventlog.Reminders(js, 0)
	publish := func(stream eventlog.Stream, expected uint64, header eventlog.Header, lines ...wire.Event) {
		t.Helper()
		a, err := stream.NewAppender(0)
		streamtest.Must(t, err)
		defer a.Close()
		var payload []byte
		for _, ev := range lines {
			payload = append(ev.AppendJSON(payload), '\n')
		}
		if _, err := a.Publish(ctx, eventlog.Attempt{Expected: expected, Header: streamtest.Sealed(header.Encode()), Payload: payload}); err != nil {
			t.Fatal(err)
		}
	}
	// The log is in the past: its reminders are overdue.
	base := wire.At(time.Now().Add(-time.Hour))
	lines := firings(base, false)
	step := func(n uint64, lines ...wire.Event) {
		t.Helper()
		at := lines[len(lines)-1].At.Time()
		publish(events, n-1, eventlog.Header{Commands: [2]uint64{n, n}, CommandTime: at, LaneTime: at, Owner: "o"}, lines...)
	}
	publishFired := func(n uint64, line int, r uint64, lines ...wire.Event) {
		t.Helper()
		for i := range lines {
			lines[i].At, lines[i].DueAt = base+91*second, base+90*second
		}
		tail, err := events.Tail(ctx)
		streamtest.Must(t, err)
		publish(reminders, n-1, eventlog.Header{Owner: "o", SourceDigest: tail.Message.Digest(),
			Source: eventlog.Source{Sequence: tail.Message.Sequence, Line: line, LastR: r}}, lines...)
	}
	f := NewFold()
	catchUp := func(want oracle.Tally, end uint64) {
		t.Helper()
		ends, err := f.CatchUp(ctx, js, log)
		streamtest.Must(t, err)
		if f.Tally() != want || ends[0] != end || f.Unpublished != int(want.Fired-want.Published) || len(f.Violations) > 0 {
			t.Errorf("%+v, unpublished %d, up to %d, %q; want %+v, up to %d", f.Tally(), f.Unpublished, ends[0], f.Violations, want, end)
		}
		if whole, _, err := Log(ctx, js, log); err != nil || whole.Tally() != want || len(whole.Violations) > 0 {
			t.Errorf("read at once: %+v, %q, %v; want %+v", whole.Tally(), whole.Violations, err, want)
		}
	}
	catchUp(oracle.Tally{}, 0)
	due := len(lines) - 2
	step(1, lines[:5]...)
	catchUp(oracle.Tally{Set: 1, Pending: 1}, 1)
	step(2, lines[5:due]...)
	catchUp(oracle.Tally{Set: 6, Cancelled: 1, Pending: 5}, 2)
	step(3, lines[due:]...)
	catchUp(oracle.Tally{Set: 6, Cancelled: 1, Pending: 1, Fired: 4}, 3)
	publishFired(1, 2, 1, line("s", "alice"), line("s", "bob"), line("z", "carol"))
	catchUp(oracle.Tally{Set: 6, Cancelled: 1, Pending: 1, Fired: 4, Published: 3}, 3)
	publishFired(2, 2, 2, line("z", "dave"))
	catchUp(oracle.Tally{Set: 6, Cancelled: 1, Pending: 1, Fired: 4, Published: 4}, 3)
	publishFired(3, 2, 2, line("z", "dave"))
	if _, err := f.CatchUp(ctx, js, log); err != nil || len(f.Violations) != 1 {
		t.Errorf("published again: %q, %v", f.Violations, err)
	}
}
