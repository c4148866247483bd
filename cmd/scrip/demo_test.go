package main

import (
	"encoding/json"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/demo"
)

// TestDemo: in a small sale the promises hold, in SQL too.
func TestDemo(t *testing.T) {
	p := shared(t)
	got := scripNow(t, "demo", "--codes", "300", "--customers", "900", "-o", "json", "--data", p.Data)
	var r demo.Report
	if err := json.Unmarshal([]byte(got.out), &r); err != nil || got.code != cli.ExitDone {
		t.Fatalf("%+v %v", got, err)
	}
	if !r.OK() || r.Note != "" || len(r.Promises) != 11 {
		t.Errorf("%+v", r)
	}
	for _, promise := range r.Promises {
		if promise.Name == "coupons claimed" && promise.SQL != "300" {
			t.Errorf("%+v", promise)
		}
	}
}
