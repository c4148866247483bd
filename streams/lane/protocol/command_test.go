package protocol

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestSubjectsDecideWhoMaySendWhat: the subject gives scope and campaign. The header of a person counts on the subject where
// servers alone may publish, if it is a name.
func TestSubjectsDecideWhoMaySendWhat(t *testing.T) {
	at := time.Date(2027, 1, 15, 8, 0, 0, 123456789, time.UTC)
	for _, c := range []struct {
		subject, by string
		want        Command
	}{
		{topology.LaneCmd(0), "ann", Command{Scope: wire.ScopeTrusted, By: "ann"}},
		{topology.LaneCmd(0), "local:ann@ops1", Command{Scope: wire.ScopeTrusted, By: "local:ann@ops1"}},
		{topology.LaneCmd(0), "", Command{Scope: wire.ScopeTrusted}},
		{topology.LaneCmd(0), "a\x00", Command{Scope: wire.ScopeTrusted}},
		{topology.LaneCmd(0), strings.Repeat("x", 65), Command{Scope: wire.ScopeTrusted}},
		{topology.LaneShop(0), "ann", Command{Scope: wire.ScopeProducer}},
		{topology.LaneCmdFor(0, "summer"), "ann", Command{Scope: wire.ScopeProducer, Campaign: "summer"}},
		{topology.LaneAdminFor(0, "summer"), "ann", Command{Scope: wire.ScopeOperator, Campaign: "summer"}},
		{topology.LaneDue(0), "ann", Command{Scope: wire.ScopeScheduler}},
	} {
		got, err := CommandOf(&eventlog.Raw{Subject: c.subject, Sequence: 7, Time: at, Header: nats.Header{topology.HeaderBy: []string{c.by}}})
		if err != nil || got.Scope != c.want.Scope || got.Campaign != c.want.Campaign || got.By != c.want.By || got.Sequence != 7 || !got.Stamped.Equal(at.Truncate(time.Microsecond)) {
			t.Errorf("%s with %q: %+v, %v", c.subject, c.by, got, err)
		}
	}
	if _, err := CommandOf(&eventlog.Raw{Subject: topology.Evt(0)}); err == nil {
		t.Error("a subject of no commands is accepted")
	}
}

// TestAReplyThatIsNoInboxIsIgnored: the lane publishes outcomes with its own permissions.
func TestAReplyThatIsNoInboxIsIgnored(t *testing.T) {
	for reply, want := range map[string]Command{
		"":                                 {},
		"_INBOX.a":                         {Reply: "_INBOX.a"},
		"_INBOX.>":                         {BadReply: true},
		"_INBOX":                           {BadReply: true},
		"_INBOX..a":                        {BadReply: true},
		topology.Evt(0):                    {BadReply: true},
		"$JS.API.STREAM.PURGE.SCRIP_EVT_0": {BadReply: true},
	} {
		got, err := CommandOf(&eventlog.Raw{Subject: topology.LaneCmd(0), Header: nats.Header{topology.HeaderReply: {reply}}})
		if err != nil || got.Reply != want.Reply || got.BadReply != want.BadReply {
			t.Errorf("%q: %+v, %v", reply, got, err)
		}
	}
}

// TestWrongCodesAreCounted: those of commands straight to the log. Servers count their own where they know the key.
func TestWrongCodesAreCounted(t *testing.T) {
	o := New(Options{Log: "u", State: domain.NewLane(domain.LaneOptions{Lanes: 1})})
	lines := []byte(`{"id":"a","type":"redeem","code":"\"refusal\":\"code_not_found\"","order_id":"o"}
{"id":"b","type":"claim","campaign":"none","customer_id":"ann"}
{"id":"c","type":"rollback","code":"AAAA-BBBB-CCCC","order_id":"o"}
`)
	for scope, want := range map[wire.Scope]int{wire.ScopeProducer: 2, wire.ScopeTrusted: 0} {
		if wrong := o.Decide(&Command{Sequence: 1, Scope: scope, Payload: lines}); wrong != want {
			t.Errorf("scope %d: %d wrong codes, want %d", scope, wrong, want)
		}
	}
}
