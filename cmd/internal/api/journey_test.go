package api_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
)

// TestJourneyWithCurl runs testdata/journey.sh.
func TestJourneyWithCurl(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	r := apitest.Shared(t)
	r.Ask(t, "", "POST", "/v1/campaigns", map[string]any{"campaign": "winter", "codes": 1}).Want(t, 201)
	code := r.Claim(t, "winter", "ann")
	password, _ := r.User.Password()
	cmd := exec.CommandContext(t.Context(), "bash", "testdata/journey.sh")
	cmd.Env = append(os.Environ(), "URL="+r.URL, "AUTH="+r.User.Username()+":"+password, "CODE="+code)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{`"status":"imported"`, `"duplicates":1`, `"category":"food"`, `"status":"voided"`, `"type":"coupon.voided"`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("lacks %s: %s", want, out)
		}
	}
}
