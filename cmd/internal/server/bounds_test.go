package server

import (
	"errors"
	"fmt"
	"testing"

	"github.com/seed-4a2410e3/scrip/projections/segments"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestSettingsOfPostgreSQL: what is not known is not shown as good, each finding is logged once, and one that was found
// stays while PostgreSQL is away.
func TestSettingsOfPostgreSQL(t *testing.T) {
	away := errors.New("connection refused")
	few, idle := segments.Loose{What: "few", Fix: "more"}, segments.Loose{What: "idle", Fix: "less"}
	b := &bounds{why: away}
	for i, step := range []struct {
		now   []segments.Loose
		err   error
		fresh int
		ok    bool
		text  string
	}{
		{nil, away, 0, false, "the settings of PostgreSQL are not known: connection refused"},
		{nil, nil, 0, true, ""},
		{[]segments.Loose{few}, nil, 1, false, "few; more"},
		{nil, away, 0, false, "few; more"},
		{[]segments.Loose{few, idle}, nil, 1, false, "few; more. idle; less"},
		{nil, nil, 0, true, ""},
	} {
		fresh := b.update(step.now, step.err)
		ok, detail := b.check()
		text := ""
		if said, has := detail.(map[string]any); has {
			text, _ = said["error"].(string)
		}
		streamtest.Equal(t, fmt.Sprint("step ", i), fmt.Sprint(len(fresh), ok, text), fmt.Sprint(step.fresh, step.ok, step.text))
	}
}
