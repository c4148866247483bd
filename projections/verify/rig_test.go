package verify

import (
	"os"
	"testing"

	"github.com/seed-4a2410e3/scrip/projections/pgtest"
	"github.com/seed-4a2410e3/scrip/projections/readtest"
	"github.com/seed-4a2410e3/scrip/projections/rebuild"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// rig opens sessions on the database of a readtest.Rig.
type rig struct{ *readtest.Rig }

func newRig(t testing.TB) *rig {
	t.Helper()
	return &rig{readtest.New(t)}
}

func (r *rig) session() *rebuild.Session { return r.sessionWith(rebuild.Options{}) }

func (r *rig) sessionWith(opts rebuild.Options) *rebuild.Session {
	r.T.Helper()
	opts.Logger, opts.BatchLines = readtest.Quiet, 7
	s, err := rebuild.Open(r.T.Context(), r.URL, r.JS, r.Log, opts)
	if err != nil {
		r.T.Fatal(err)
	}
	return s
}

func (r *rig) verify(opts Options) *Report { return r.verifyWith(rebuild.Options{}, opts) }

func (r *rig) verifyWith(session rebuild.Options, opts Options) *Report {
	r.T.Helper()
	s := r.sessionWith(session)
	defer s.Close()
	report, err := Run(r.T.Context(), s, r.JS, opts)
	if err != nil {
		r.T.Fatalf("verify: %v", err)
	}
	return report
}
