package rebuild

import (
	"os"
	"testing"

	"github.com/seed-4a2410e3/scrip/projections/pgtest"
	"github.com/seed-4a2410e3/scrip/projections/readtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

const lanes = readtest.Lanes

// rig opens sessions on the database of a readtest.Rig.
type rig struct{ *readtest.Rig }

func newRig(t testing.TB) *rig {
	t.Helper()
	return &rig{readtest.New(t)}
}

func (r *rig) open(opts Options) *Session {
	r.T.Helper()
	s, err := r.tryOpen(opts)
	if err != nil {
		r.T.Fatal(err)
	}
	return s
}

func (r *rig) tryOpen(opts Options) (*Session, error) {
	opts.Logger = readtest.Quiet
	if opts.Limits.Lines == 0 {
		opts.Limits.Lines = 7 // so that there are many
	}
	return Open(r.T.Context(), r.URL, r.JS, r.Log, opts)
}

func (r *rig) rebuild(opts Options) Result {
	r.T.Helper()
	s := r.open(opts)
	defer s.Close()
	got, err := s.Rebuild(r.T.Context())
	if err != nil {
		r.T.Fatalf("rebuild: %v", err)
	}
	return got
}

// schemas are those that scrip made.
func (r *rig) schemas() string {
	r.T.Helper()
	return r.Text(`SELECT coalesce(string_agg(nspname, ' ' ORDER BY nspname), '') FROM pg_namespace WHERE nspname LIKE 'scrip%' AND nspname <> 'scrip_meta'`)
}

func (r *rig) verify(opts VerifyOptions) *Report { return r.verifyWith(Options{}, opts) }

func (r *rig) verifyWith(session Options, opts VerifyOptions) *Report {
	r.T.Helper()
	s := r.open(session)
	defer s.Close()
	report, err := s.Verify(r.T.Context(), opts)
	if err != nil {
		r.T.Fatalf("verify: %v", err)
	}
	return report
}
