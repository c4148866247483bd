package projector

import (
	"testing"
	"time"
)

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
