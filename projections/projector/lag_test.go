package projector

import (
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestLagIsTrueOrNotKnown: view scrip.lag never shows tables as current that nothing fills. What it shows is recorded
// again and again, and only for as long as it is fresh; a projector that stops takes it back, and one that is killed
// leaves what gets old.
func TestLagIsTrueOrNotKnown(t *testing.T) {
	r := newRig(t)
	r.work()
	p := r.project(Options{})
	r.synced(r.pool)
	const (
		current = "SELECT count(*)::text FROM scrip.lag WHERE behind = 0 AND behind_seconds = 0 AND current_in_seconds = 0"
		known   = "SELECT count(behind) + count(behind_seconds) + count(current_in_seconds) FROM scrip.lag"
	)
	r.shows("current lanes", current, "2")

	tx, err := r.pool.Begin(t.Context())
	streamtest.Must(t, err)
	defer tx.Rollback(t.Context()) //nolint:errcheck
	_, err = tx.Exec(t.Context(), "UPDATE scrip_meta.lag SET recorded_at = clock_timestamp() - interval '31 seconds'")
	streamtest.Must(t, err)
	var old int
	streamtest.Must(t, tx.QueryRow(t.Context(), known).Scan(&old))
	streamtest.Equal(t, "known of what was recorded long ago", old, 0)
	streamtest.Must(t, tx.Commit(t.Context()))
	r.shows("current lanes, without an event", current, "2")

	second := r.projector(projtest.Pool(t, r.pool.Config().ConnString()), Options{}).start()
	second.reaches(0, Standby)
	second.reaches(1, Standby)
	if got := second.metrics(); len(got) != lanes || got["following0"]+got["following1"] != 0 {
		t.Errorf("metrics of the one on standby: %v", got)
	}
	second.stop()
	p.stop()
	r.Claim(0, 3)
	streamtest.Equal(t, "known without a projector", count(t, r.pool, known), 0)
}

func TestPace(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var p pace
	for i, step := range []struct {
		second       int
		applied, end uint64
		want         time.Duration
	}{
		{0, 0, 1000, Unknown},           // nothing to compare with
		{1, 100, 1000, 9 * time.Second}, // 100 a second, nothing arrives
		{2, 200, 1000, 8 * time.Second},
		{3, 300, 1050, 15 * time.Second}, // 50 arrive meanwhile
		{4, 400, 2000, Unknown},          // more arrives than is applied
		{5, 2000, 2000, 0},               // current
	} {
		now := start.Add(time.Duration(step.second) * time.Second)
		p.sample(now, step.applied, step.end)
		if got := p.left(now, step.applied, step.end); got.Round(time.Second) != step.want && got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
}
