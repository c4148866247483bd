package lane_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// list queries campaigns.
func (r *rig) list(after string, limit int) (names []string, more bool, size int) {
	r.t.Helper()
	var page struct {
		Data []domain.CampaignView
		More bool
	}
	size = r.query(map[string]any{"query": "campaign.list", "after": after, "limit": limit}, &page)
	for _, v := range page.Data {
		names = append(names, v.Campaign)
	}
	return names, page.More, size
}

// TestLargeListsAreCut: no answer is larger than half a message, and all is found in later ones.
func TestLargeListsAreCut(t *testing.T) {
	r := newRig(t)
	r.up(r.start(r.options()))
	const campaigns = 1200
	benefit := `{"html":"` + strings.Repeat("<", 480) + `"}`
	var lines []string
	for i := range campaigns {
		lines = append(lines, create(fmt.Sprintf("campaign-%04d", i*7%campaigns), 10, `,"benefit":`+benefit))
		if len(lines) == 200 {
			r.request(lines...)
			lines = nil
		}
	}
	names, more, size := r.list("", 1000)
	if !more || size > 513<<10 || len(names) < 400 {
		t.Fatalf("%d campaigns in %d bytes, more: %v", len(names), size, more)
	}
	all := names
	for more {
		names, more, _ = r.list(all[len(all)-1], 1000)
		all = append(all, names...)
	}
	for i, name := range all {
		if name != fmt.Sprintf("campaign-%04d", i) {
			t.Fatalf("place %d has %s", i, name)
		}
	}
	if len(all) != campaigns {
		t.Errorf("%d campaigns are listed", len(all))
	}
	if names, more, _ := r.list("campaign-0100", 10); len(names) != 10 || more || names[0] != "campaign-0101" {
		t.Errorf("a page of ten: %v, %v", names, more)
	}
}

// TestLongQueriesHoldUpNothing: the lane decides and answers other queries while long ones are under way, and drops those
// whose client no longer waits.
func TestLongQueriesHoldUpNothing(t *testing.T) {
	lane.EndlessWalks(t)
	r := newRig(t)
	o := r.options()
	registry := prometheus.NewRegistry()
	o.Metrics = lane.NewMetrics(registry)
	clock := streamtest.NewClock()
	o.Clock = clock
	run := r.up(r.start(o))
	defer run.stop()
	r.one(create("c", 1000, ""))
	answered, err := r.nc.SubscribeSync("_INBOX.long")
	if err != nil {
		t.Fatal(err)
	}
	const long = 200
	for i := range long {
		query := `{"query":"customer.show","customer_id":"ann"}`
		if i%2 == 0 {
			query = `{"query":"campaign.list","wait_ms":1500}`
		}
		if err := r.nc.PublishRequest(topology.LaneQuery(0), "_INBOX.long", []byte(query)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 50 {
		if out := r.one(claim("c", fmt.Sprint("customer-", i))); out.N != uint32(i+1) {
			t.Fatalf("claim %d: %+v", i, out)
		}
	}
	dropped := func() float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "scrip_lane_queries_dropped_total" {
				return f.Metric[0].GetCounter().GetValue()
			}
		}
		return 0
	}
	clock.Move(2 * time.Second) // no client waits any more
	streamtest.Eventually(t, "all are dropped", func() bool { return dropped() == long })
	if _, err := r.nc.Request(topology.LaneQuery(0), []byte(`{"query":"campaign.show","campaign":"c"}`), 30*time.Second); err != nil {
		t.Errorf("a query after them: %v", err)
	}
	if msg, err := answered.NextMsg(time.Millisecond); err != nats.ErrTimeout {
		t.Errorf("one was answered: %v, %v", msg, err)
	}
}
