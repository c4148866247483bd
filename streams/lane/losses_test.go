package lane

import (
	"testing"
	"time"
)

// TestAFenceLostAgainAndAgainPauses: the third loss within ten seconds, and each that follows as closely.
func TestAFenceLostAgainAndAgainPauses(t *testing.T) {
	var l losses
	started := time.Now()
	for _, step := range []struct {
		at   time.Duration
		want time.Duration
	}{
		{0, 0},
		{time.Second, 0},
		{9 * time.Second, lostPause},
		{10 * time.Second, lostPause},
		{30 * time.Second, 0},
		{31 * time.Second, 0},
		{39 * time.Second, lostPause},
	} {
		if got := l.add(started.Add(step.at)); got != step.want {
			t.Errorf("a loss at %s pauses %s, expected %s", step.at, got, step.want)
		}
	}
}
