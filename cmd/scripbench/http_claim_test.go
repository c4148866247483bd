package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
)

// TestHTTPGoals: the ratios are of one claim each, and a system that was not measured has no goal.
func TestHTTPGoals(t *testing.T) {
	system := func(name string, rate, cpu float64, done int) report.System {
		return report.System{Name: name, Median: report.Run{Done: done, Rate: rate, Spent: report.Spent{ProcessCPU: cpu}}}
	}
	all := []report.System{system(report.Subject, 10_000, 4, 100_000), system(bareName, 50_000, 0.5, 50_000),
		system(natsName, 20_000, 3, 150_000), system(linesName, 35_000, 1, 100_000)}
	goals := httpGoals(all)
	if len(goals) != 2 || goals[0].Is < 1.333 || goals[0].Is > 1.334 || goals[0].Met() || goals[1].Is != 3.5 || goals[1].Met() {
		t.Fatalf("%+v", goals) // 40 / (10 + 20), 35,000 / 10,000
	}
	all[0].Median.ProcessCPU, all[3].Median.Rate = 3.9, 40_000
	if goals = httpGoals(all); !goals[0].Met() || !goals[1].Met() {
		t.Errorf("%+v", goals)
	}
	if goals = httpGoals(all[:2]); len(goals) != 0 {
		t.Errorf("of half of them: %+v", goals)
	}
	var out bytes.Buffer
	if err := report.Write(&out, &report.Table{Unit: "claims", Systems: all, Goals: httpGoals(all)}); err != nil {
		t.Fatal(err)
	}
	contains(t, out.String(), "a claim over HTTP 39.0us / (bare request 10.0us + claim over NATS 20.0us)", "1.30  at most 1.3  met", "at least 4  met")
}

// TestTheBareAnswerHasTheSizeOfScrips.
func TestTheBareAnswerHasTheSizeOfScrips(t *testing.T) {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"customer_id":"ann"}`))
	bareClaim(w, r)
	const scrips = `{"id":"h0123456789abcdefghijklmno","status":"claimed","campaign":"run0-0-0","n":50000,"code":"AAAA-BBBB-CCCC","customer_id":"customer-50000"}` + "\n"
	if w.Code != http.StatusCreated || w.Body.Len() < len(scrips)-10 || w.Body.Len() > len(scrips)+10 {
		t.Errorf("%d, %d bytes, scrip's has %d", w.Code, w.Body.Len(), len(scrips))
	}
}
