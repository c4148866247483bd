package server

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestAnalystsAreUnguarded: the check and the metric show a revocation that is late, whatever kept it, and claims do
// not wait for it.
func TestAnalystsAreUnguarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &analysts{guarded: time.Now()}
		now := func() (ok bool, text string, seconds float64) {
			ok, detail := a.check()
			text, _ = detail.(map[string]any)["error"].(string)
			var m dto.Metric
			streamtest.Must(t, a.metric().(interface{ Write(*dto.Metric) error }).Write(&m))
			return ok, text, m.GetGauge().GetValue()
		}
		time.Sleep(analystsWithin)
		if ok, text, _ := now(); !ok {
			t.Errorf("within its time: %s", text)
		}
		time.Sleep(time.Second)
		if ok, text, seconds := now(); ok || seconds != 3 || !strings.Contains(text, "for 3s sessions of revoked keys may go on") {
			t.Errorf("after it: %t, %s, %v", ok, text, seconds)
		}
		a.why = errors.New("connection refused")
		if ok, text, _ := now(); ok || !strings.HasSuffix(text, ": connection refused") {
			t.Errorf("with its reason: %t, %s", ok, text)
		}
		a.guarded, a.why, a.exposed = time.Now(), nil, "analysts may X"
		if ok, detail := a.check(); !ok || detail.(map[string]any)["exposed"] != "analysts may X" {
			t.Errorf("with rights of everybody: %t, %v", ok, detail)
		}
	})
}
