package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestAMillionPrintedCodes are allotted in one event and printed; a file that was cut off is gone on with; one is redeemed.
func TestAMillionPrintedCodes(t *testing.T) {
	p := shared(t)
	p.must("campaign", "create", "printed", "--codes", "1000001", "--valid-for", "24h")
	p.must("claim", "printed", "--customer", "ann")
	p.expect(cli.ExitRefused, "sold_out", "codes", "allot", "printed", "--count", "1000001", "--batch", "flyer", "-o", "json")
	if out := p.must("codes", "allot", "printed", "--count", "1000000", "--batch", "flyer"); out["n"] != 2.0 || out["count"] != 1e6 {
		t.Errorf("%v", out)
	}
	p.expect(cli.ExitDone, `"from_n":2,"through_n":1000001,"count":1000000`, "codes", "allotments", "printed", "-o", "json")
	file := filepath.Join(t.TempDir(), "flyer.csv")
	began := time.Now()
	p.expect(cli.ExitDone, "", "codes", "print", "printed", "flyer", "--file", file)
	took := time.Since(began)
	whole, err := os.ReadFile(file)
	streamtest.Must(t, err)
	t.Logf("1,000,000 codes, %d bytes, in %s", len(whole), took)
	if lines := bytes.Count(whole, []byte("\n")); lines != 1_000_001 || took > 10*time.Second {
		t.Errorf("%d lines in %s", lines, took)
	}
	for _, cut := range []int{7, len(whole) - 40, len(whole)} {
		streamtest.Must(t, os.Truncate(file, int64(cut)))
		p.expect(cli.ExitDone, "", "codes", "print", "printed", "flyer", "--file", file)
		if again, err := os.ReadFile(file); err != nil || !bytes.Equal(again, whole) {
			t.Errorf("gone on with after %d bytes, the file has %d, want %d: %v", cut, len(again), len(whole), err)
		}
	}
	for _, other := range []string{"n,code\n1,X\n", "campaign,n,code\nother,2,X\n", strings.Repeat("x", 300)} {
		streamtest.Must(t, os.WriteFile(file, []byte(other), 0o600))
		p.expect(cli.ExitFailed, "is no file of printed codes", "codes", "print", "printed", "flyer", "--file", file)
		if kept, err := os.ReadFile(file); err != nil || string(kept) != other {
			t.Errorf("the file %q became %q: %v", other, kept, err)
		}
	}
	last := bytes.Split(bytes.TrimSpace(whole), []byte("\n"))[1_000_000]
	code := string(bytes.Split(last, []byte(","))[2])
	if out := p.must("redeem", code, "--order", "o", "--customer", "bob"); out["n"] != 1000001.0 {
		t.Errorf("%s: %v", last, out)
	}
	p.expect(cli.ExitRefused, "not_holder", "redeem", code, "--order", "p", "--customer", "cy", "-o", "json")
	p.must("void", "--campaign", "printed", "--n", "7")
	p.row("1000001 1000001 1 1 999999", `SELECT concat_ws(' ', c.claimed, (SELECT claimed FROM scrip.campaign_stats WHERE campaign = c.campaign AND attribute = ''), c.redeemed, c.voided,
		(SELECT pending FROM scrip.expiry_task WHERE campaign = c.campaign ORDER BY due_at DESC LIMIT 1)) FROM scrip.campaign c WHERE campaign = 'printed' AND redeemed = 1 AND voided = 1`)
	p.row("1 ann claimed; 7  voided; 1000001 bob redeemed", `SELECT string_agg(concat_ws(' ', n, customer_id, status), '; ' ORDER BY n) FROM scrip.coupon WHERE campaign = 'printed'`)
	p.expect(cli.ExitDone, `"total":0`, "verify", "--campaign", "printed", "-o", "json")
	p.expect(cli.ExitDone, `"what":"allotted"`, "coupon", "show", "--campaign", "printed", "--n", "1000001", "-o", "json")
	p.expect(cli.ExitDone, `"batch":"flyer"`, "coupon", "show", "--campaign", "printed", "--n", "8", "-o", "json")
	if got := p.run("replay", "--campaign", "printed", "--type", "coupons.allotted"); strings.Count(got.out, "\n") != 1 || !strings.Contains(got.out, `"from_n":2,"through_n":1000001,"batch":"flyer"`) {
		t.Errorf("%+v", got)
	}
	p.expect(cli.ExitDone, "codes.print", "audit", "--kind", "export", "--limit", "1000")
}
