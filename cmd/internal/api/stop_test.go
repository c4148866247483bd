package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
)

// TestAPlannedStopLeavesNoUnknownOutcome: while a server stops, each claim under way gets its outcome, and later ones are refused
// without effect.
func TestAPlannedStopLeavesNoUnknownOutcome(t *testing.T) {
	r := apitest.Serve(t)
	c := r.Campaign(t, map[string]any{"codes": 1_000_000})
	const clients = 50
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer web.CloseIdleConnections()
	var claimed atomic.Int64
	var all sync.WaitGroup
	for n := range clients {
		all.Go(func() {
			for i := 0; ; i++ {
				req := r.Request(t, "", "POST", "/v1/campaigns/"+c+"/claims", map[string]any{"customer_id": fmt.Sprint(n, " ", i)})
				resp, err := web.Do(req)
				if err != nil {
					return // the listener is closed
				}
				var answer struct{ Code, Effect, Detail string }
				err = json.NewDecoder(resp.Body).Decode(&answer)
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusCreated && err == nil {
					claimed.Add(1)
					continue
				}
				if err != nil || answer.Effect != "none" {
					t.Errorf("%d %+v %v", resp.StatusCode, answer, err)
				}
				return
			}
		})
	}
	apitest.Until(t, "claims are under way", func() bool { return claimed.Load() > 10*clients })
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	all.Wait()
}
