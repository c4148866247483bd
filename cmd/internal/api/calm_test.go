package api_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/seed-4a2410e3/scrip/cmd/internal/alert"
	"github.com/seed-4a2410e3/scrip/cmd/internal/sample"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// warnings keeps lines of a log that a person should look at.
type warnings struct {
	slog.Handler
	lines *streamtest.Buffer
}

func (w warnings) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		return slog.NewTextHandler(w.lines, nil).Handle(ctx, r)
	}
	return nil
}

// scrape reads the metrics of a server, but for the disks: they are the machine's, and may be full.
func scrape(t *testing.T, r *apitest.Rig) (families []*dto.MetricFamily) {
	t.Helper()
	resp, err := http.Get(r.URL + "/metrics")
	streamtest.Must(t, err)
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(resp.Body)
	streamtest.Must(t, err)
	for name, f := range all {
		if !strings.HasPrefix(name, "scrip_disk_") {
			families = append(families, f)
		}
	}
	return families
}

// gathered is a prometheus.Gatherer of metrics that are scraped already.
type gathered struct{ families []*dto.MetricFamily }

func (g *gathered) Gather() ([]*dto.MetricFamily, error) { return g.families, nil }

// step is the time between two looks at the metrics: the shortest time that a condition looks back. Servers at rest are scraped
// at one look of some.
const step, scrapeEvery = time.Minute, 5

// TestThreeServersAtRest: three servers share a log; each part works at one of them and is on standby at the others. The servers'
// clock goes on for longer than every alert's condition must hold and looks back. No server would raise an alert, none logs a warning, and
// what is measured of a part comes from the server that does its work.
func TestThreeServersAtRest(t *testing.T) {
	const lanes = 3 // one for each server: then none moves any more
	nats, db, lines := streamtest.Start(t, streamtest.Lanes(lanes)), projtest.URL(t), &streamtest.Buffer{}
	var passed atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
	rigs := make([]*apitest.Rig, 3)
	start := func(i int) {
		rigs[i] = apitest.Serve(t, func(o *server.Options) {
			o.NATS, o.NATSListen, o.Lanes, o.Postgres, o.CodeKey, o.Clock.Wall = nats.ClientURL(), "", lanes, db, strings.Repeat("01", 32), now
			o.Logger = slog.New(warnings{slog.DiscardHandler, lines})
		})
	}
	for i := range rigs {
		start(i)
	}

	nc := nats.Conn(t)
	var reports []status.Report
	apitest.Until(t, "each server owns a lane, one fills the tables, and the others are on standby", func() (ready bool) {
		var err error
		reports, err = status.Reports(t.Context(), nc, nil)
		streamtest.Must(t, err)
		owners, states := map[string]bool{}, map[string]int{}
		for _, r := range reports {
			for _, l := range r.Lanes() {
				if l.State.Owns() && l.Backlog != nil { // its scheduler works, too
					owners[r.Server] = true
				}
			}
			for _, p := range r.Tables() {
				states[string(p.State)]++
			}
		}
		return len(owners) == len(rigs) && states["following"] == lanes && states["standby"] == 2*lanes
	})

	for _, r := range rigs { // what a scrape reads from PostgreSQL is kept for some seconds: this test does not wait for it again
		apitest.Until(t, "PostgreSQL has answered a scrape", func() bool {
			return slices.ContainsFunc(scrape(t, r), func(f *dto.MetricFamily) bool {
				return f.GetName() == "scrip_postgres_up" && f.Metric[0].GetGauge().GetValue() == 1
			})
		})
	}
	samplers, scraped := make([]*sample.Sampler, len(rigs)), make([]*gathered, len(rigs))
	for i := range rigs {
		scraped[i] = &gathered{}
		samplers[i] = sample.New(sample.Options{Conn: nc, Lanes: lanes, Metrics: scraped[i], Logger: slog.New(slog.DiscardHandler)})
	}
	for n := range int(longest()/step) + 1 {
		for i, r := range rigs {
			if n%scrapeEvery == 0 {
				scraped[i].families = scrape(t, r)
			}
			samplers[i].Take(now(), reports, nil)
		}
		passed.Add(int64(step))
	}
	reports, err := status.Reports(t.Context(), nc, nil) // what depends on the clock does so now
	streamtest.Must(t, err)
	for i, s := range samplers {
		s.Take(now(), reports, nil)
		got := s.Overview(now())
		for _, a := range got.Alerts {
			t.Errorf("server %d: %s since %s", i, a.Name, a.Since)
		}
		if got.Lag < 0 || got.Lag > 5 {
			t.Errorf("server %d: the tables are %g s late", i, got.Lag)
		}
	}
	if text := lines.String(); text != "" {
		t.Errorf("servers at rest warn:\n%s", text)
	}
	for _, wrong := range exporters(t, scraped, lanes) {
		t.Error(wrong)
	}
}

// longest is the longest time that an alert's condition looks back and must hold.
func longest() (most time.Duration) {
	for _, r := range alert.Rules {
		most = max(most, r.For+r.Window())
	}
	return most
}

// exporters compares who has the gauges with docker/prometheus/metrics.txt: those of the work of one server it alone has, the others
// all have.
func exporters(t *testing.T, scraped []*gathered, lanes int) (wrong []string) {
	text, err := os.ReadFile("../../../docker/prometheus/metrics.txt")
	streamtest.Must(t, err)
	who := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); f[0] != "#" {
			who[f[0]] = f[1]
		}
	}
	works := map[string]string{"owner": alert.Owned, "follower": alert.Followed}
	has := map[string][]int{} // the servers that have a metric, by its name and lane
	worker := map[string]int{}
	for i, g := range scraped {
		for _, f := range g.families {
			for _, m := range f.Metric {
				lane := ""
				for _, l := range m.Label {
					if l.GetName() == "lane" {
						lane = l.GetValue()
					}
				}
				if f.GetType() == dto.MetricType_GAUGE && !slices.Contains(has[f.GetName()+" "+lane], i) {
					has[f.GetName()+" "+lane] = append(has[f.GetName()+" "+lane], i)
				}
				for part, metric := range works {
					if f.GetName() == metric && m.GetGauge().GetValue() > 0 {
						worker[part+" "+lane] = i
					}
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(has)) {
		metric, lane, _ := strings.Cut(name, " ")
		part := who[metric]
		by, works := worker[part+" "+lane]
		switch {
		case works && !slices.Equal(has[name], []int{by}):
			wrong = append(wrong, fmt.Sprintf("servers %v have %s of lane %s; server %d is its %s", has[name], metric, lane, by, part))
		case part == "stage" && len(has[name]) > 1:
			wrong = append(wrong, fmt.Sprintf("servers %v have %s; one holds reminders back", has[name], metric))
		case (part == "each" || part == "same") && len(has[name]) < len(scraped):
			wrong = append(wrong, fmt.Sprintf("servers %v have %s of lane %q, want all", has[name], metric, lane))
		}
	}
	if len(worker) != 2*lanes {
		wrong = append(wrong, fmt.Sprintf("the metrics show the workers %v", worker))
	}
	return wrong
}
