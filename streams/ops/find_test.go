package ops

import (
	"fmt"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// The events of a command are found by its whole id, by those who may see their campaign, and the answer says how far it looked.
func TestFindCommand(t *testing.T) {
	r := newJobRig(t)
	log, err := topology.Ensure(t.Context(), r.js, topology.Spec{Lanes: 1, KeyFingerprint: "k", CmdMaxBytes: 1 << 20})
	streamtest.Must(t, err)
	const at = "2026-11-26T00:00:00Z"
	for _, lines := range []string{
		`{"type":"coupon.claimed","id":"one","campaign":"spring","at":"%s","n":1,"customer_id":"c"}`,
		`{"type":"coupon.claimed","id":"one-more","campaign":"spring","at":"%[1]s","n":2,"customer_id":"c"}` + "\n" +
			`{"type":"coupon.claimed","id":"one","campaign":"autumn","at":"%[1]s","n":3,"customer_id":"one"}`,
	} {
		_, err := r.js.Publish(t.Context(), topology.Evt(0), fmt.Appendf(nil, lines, at))
		streamtest.Must(t, err)
	}
	o := &Ops{JetStream: r.js, Log: log}
	find := func(who Caller, id, campaign string) string {
		t.Helper()
		found, err := o.FindCommand(t.Context(), who, FindCommand{id, campaign})
		streamtest.Must(t, err)
		all := ""
		for _, e := range found.Events {
			all += fmt.Sprintf("%s %s %d at %d.%d; ", e.What, e.Campaign, e.N, e.Sequence, e.Line)
		}
		if len(found.Searched) != 1 || !found.Searched[0].All || found.Searched[0].Messages != 2 {
			t.Errorf("searched %+v", found.Searched)
		}
		return all
	}
	streamtest.Equal(t, "one", find(ann, "one", ""), "coupon.claimed autumn 3 at 2.2; coupon.claimed spring 1 at 1.1; ")
	springs := ann
	springs.Campaigns = []string{"spring"}
	streamtest.Equal(t, "one of spring", find(springs, "one", ""), "coupon.claimed spring 1 at 1.1; ")
	streamtest.Equal(t, "another", find(ann, "on", ""), "")
	if _, err := o.FindCommand(t.Context(), ann, FindCommand{}); err == nil || RefusalOf(err).Code != wire.Invalid {
		t.Errorf("no id: %v", err)
	}
}
