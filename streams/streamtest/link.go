package streamtest

import (
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/link"
)

// Link is the network between two programs, which a test cuts.
type Link = link.Link

// NewLink starts a link to a target, which need not listen yet. It ends with the test.
func NewLink(t testing.TB, target string) *Link {
	t.Helper()
	l, err := link.Start(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}
