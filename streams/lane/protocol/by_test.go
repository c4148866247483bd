package protocol

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestByIsBelievedOfServersOnly: the header counts on the subject where servers alone may publish, if it is a name.
func TestByIsBelievedOfServersOnly(t *testing.T) {
	for _, c := range []struct{ subject, by, want string }{
		{topology.LaneCmd(0), "ann", "ann"},
		{topology.LaneCmd(0), "local:ann@ops1", "local:ann@ops1"},
		{topology.LaneCmd(0), "", ""},
		{topology.LaneCmd(0), "a\x00", ""},
		{topology.LaneCmd(0), strings.Repeat("x", 65), ""},
		{topology.LaneShop(0), "ann", ""},
		{topology.LaneCmdFor(0, "summer"), "ann", ""},
		{topology.LaneAdminFor(0, "summer"), "ann", ""},
		{topology.LaneDue(0), "ann", ""},
	} {
		got, err := CommandOf(&eventlog.Raw{Subject: c.subject, Sequence: 1, Header: nats.Header{topology.HeaderBy: []string{c.by}}})
		if err != nil || got.By != c.want {
			t.Errorf("%s with %q: by %q, %v", c.subject, c.by, got.By, err)
		}
	}
}
