package rebuild

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/projections/schema"
)

func TestTablesOfANewerVersion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.rebuild(Options{})
	r.exec("INSERT INTO scrip_meta.migration (version_id, is_applied) VALUES (99, true)")
	s := r.open(Options{})
	defer s.Close()
	_, rebuild := s.Rebuild(t.Context())
	for what, err := range map[string]error{"check": sameVersion(t.Context(), s.pool), "rebuild": rebuild} {
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), fmt.Sprintf("have migration 99, this program knows migrations up to %d", schema.Version())) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
