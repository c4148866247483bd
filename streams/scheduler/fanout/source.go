package fanout

import (
	"cmp"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// compareLines orders sources by event message and line, which counts from 1.
func compareLines(a, b eventlog.Source) int {
	return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.Line, b.Line))
}

// CompareSources orders sources as the reminder stream has them. The zero source is before all others.
func CompareSources(a, b eventlog.Source) int {
	return cmp.Or(compareLines(a, b), cmp.Compare(a.LastR, b.LastR))
}
