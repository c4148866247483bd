package server

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/projections/projector"
	"github.com/seed-4a2410e3/scrip/projections/schema"
)

// TestProjectorReadiness: what a projector does not know is null. One that waits for its lock is not fine, one on standby is, and both
// name who has it.
func TestProjectorReadiness(t *testing.T) {
	seven := uint64(7)
	for _, c := range []struct {
		now  projector.Progress
		ok   bool
		text string
	}{
		{projector.Progress{State: projector.Following, Behind: &seven}, true, `"behind_messages":7`},
		{projector.Progress{State: projector.Standby, Holder: "another one"}, true, `"behind_messages":null,"lag_seconds":0,"current_seconds":0,"locked_by":"another one"`},
		{projector.Progress{State: projector.Waiting, Err: errors.New("psql has it")}, false, `"behind_messages":null,"lag_seconds":0,"current_seconds":0,"error":"psql has it"`},
	} {
		ok, detail := projection([]projector.Progress{c.now})
		text, err := json.Marshal(detail)
		if err != nil || ok != c.ok || !strings.Contains(string(text), c.text) {
			t.Errorf("%+v: %v %s %v, want %v %s", c.now, ok, text, err, c.ok, c.text)
		}
	}
}

// TestNoTransactionStaysOpen: PostgreSQL ends a transaction whose server is stopped, with its locks.
func TestNoTransactionStaysOpen(t *testing.T) {
	s := &tables{given: "postgres://127.0.0.1/x"}
	pool, err := s.newPool(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if got := pool.Config().ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"]; got != schema.MostIdle {
		t.Errorf("a transaction may idle for %q", got)
	}
}

// TestConnectionsOfAServer: whatever the URL, the CPUs and the lanes, two servers have enough with reserved_connections, see package
// pgd, and the projector has those of its lanes and of the keeper of segments.
func TestConnectionsOfAServer(t *testing.T) {
	s := &tables{given: "postgres://127.0.0.1/x?pool_max_conns=500&pool_min_conns=3"}
	for _, lanes := range []int{1, 6, 1024} {
		sum := int32(otherConns)
		for _, most := range s.pools(lanes) {
			pool, err := s.newPool(t.Context(), most)
			if err != nil {
				t.Fatal(err)
			}
			now := pool.Config()
			if sum += now.MaxConns; now.MaxConns != most || now.MinConns != 0 {
				t.Errorf("%d lanes: from %d to %d connections", lanes, now.MinConns, now.MaxConns)
			}
			pool.Close()
		}
		if work := s.pools(lanes)[&s.work]; sum > 50/2 || int(work) < min(lanes, 6)+4 {
			t.Errorf("%d lanes: %d connections, the projector %d", lanes, sum, work)
		}
	}
}
