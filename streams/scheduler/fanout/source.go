package scheduler

import (
	"cmp"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// compareLines orders sources by the event line they expand: which step, which line of it (counted from 1).
func compareLines(a, b eventlog.Source) int {
	return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.Line, b.Line))
}

// compareSources orders sources as they stand on the reminder stream. The zero source is before them all.
func compareSources(a, b eventlog.Source) int {
	return cmp.Or(compareLines(a, b), cmp.Compare(a.LastR, b.LastR))
}
