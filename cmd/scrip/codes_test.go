package main

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
)

// TestCodes: a CSV file is imported, and the claimed codes are exported.
func TestCodes(t *testing.T) {
	p := shared(t)
	p.must("campaign", "create", "partner", "--codes", "0")

	file := filepath.Join(t.TempDir(), "codes.csv")
	if err := os.WriteFile(file, []byte("\ufeffid,code\r\n1,aaa-1\r\n\r\n2,AAA-2\r\n3,AAA 3\r\n4,AAA-2\r\n5,AAA-4\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rejects := filepath.Join(t.TempDir(), "bad.csv")
	got := p.run("codes", "import", "partner", file, "-o", "json", "--rejects", rejects, "--id", "import-1", "--weak-codes")
	if got.code != cli.ExitRefused || !strings.Contains(got.out, `"rows":5,"count":3,"already_there":0,"duplicates":1,"rejected":1`) {
		t.Errorf("import: %+v", got)
	}
	exported := filepath.Join(t.TempDir(), "codes.csv")
	if got := p.run("codes", "export", "partner", "--file", exported); got.code != cli.ExitDone {
		t.Errorf("export: %+v", got)
	}
	for _, file := range []string{rejects, exported} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s is not for its owner alone: %v, %v", file, info, err)
		}
	}
	if raw, err := os.ReadFile(rejects); err != nil || !strings.Contains(string(raw), "\n5,AAA 3,") {
		t.Errorf("rejects: %q, %v", raw, err)
	}
	if got := p.run("codes", "import", "partner", file, "--weak-codes"); got.code != cli.ExitRefused || !strings.Contains(got.err, "row 5: ") || !strings.Contains(got.out, "already there") {
		t.Errorf("import again: %+v", got)
	}
	// From standard input; in the order of the file.
	if got := scripWith(t, strings.NewReader("BBB-1\nBBB-2\n"), nil, "codes", "import", "partner", "--data", p.data, "-o", "json", "--weak-codes"); got.code != 0 || !strings.Contains(got.out, `"count":2`) {
		t.Errorf("import from standard input: %+v", got)
	}
	for n, want := range []string{"AAA-1", "AAA-2", "AAA-4", "BBB-1"} {
		if c := p.must("claim", "partner", "--customer", fmt.Sprint(n)); c["code"] != want {
			t.Errorf("claim %d: %v, want %s", n+1, c, want)
		}
	}
	p.row("4", `SELECT count(*)::text FROM scrip.coupon WHERE campaign = 'partner'`)
	got = p.run("codes", "export", "partner")
	rows, err := csv.NewReader(strings.NewReader(got.out)).ReadAll()
	if got.code != 0 || err != nil || len(rows) != 5 || rows[0][2] != "code" || rows[3][2] != "AAA-4" || rows[3][3] != "2" {
		t.Errorf("export: %+v, %v, %v", got, rows, err)
	}
	if got := p.run("codes", "export", "partner", "-o", "json"); got.code != 0 || strings.Count(got.out, `"campaign":"partner"`) != 4 {
		t.Errorf("export as JSON: %+v", got)
	}
	// For people: no codes, no formulas.
	p.must("claim", "partner", "--customer", "=cmd")
	p.row("5", `SELECT count(*)::text FROM scrip.coupon WHERE campaign = 'partner'`)
	key := filepath.Join(t.TempDir(), "mask.key")
	got = p.run("codes", "export", "partner", "--mask-codes", key, "--csv", "excel")
	rows, err = csv.NewReader(strings.NewReader(got.out)).ReadAll()
	if got.code != 0 || err != nil || len(rows) != 6 || !strings.HasPrefix(rows[1][2], "masked-") || strings.Contains(got.out, "AAA-1") || rows[5][3] != "'=cmd" {
		t.Fatalf("export for people: %+v, %v", got, err)
	}
	// The same key gives the same masks wherever it is used, so they can be joined.
	if got := p.run("replay", "--type", "coupon.claimed", "--mask-codes", key); got.code != 0 || !strings.Contains(got.out, rows[1][2]) || strings.Contains(got.out, "AAA-1") {
		t.Errorf("replay: %+v", got)
	}
	if got := p.run("replay", "--csv", "excel"); got.code != cli.ExitUsage || !strings.Contains(got.err, "--format csv") {
		t.Errorf("--csv without CSV: %+v", got)
	}

	for _, c := range []struct{ in, campaign, want string }{
		{"AAA-90001\n", "nobody", "campaign_not_found"},
		{"", "partner", "invalid"},
		{"A\n", "partner", "invalid"},
		{"AAA-9\n", "partner", "invalid"}, // weak
	} {
		if got := scripWith(t, strings.NewReader(c.in), nil, "codes", "import", c.campaign, "--data", p.data); got.code != cli.ExitRefused || !strings.Contains(got.out, c.want) {
			t.Errorf("importing %q into %s: %+v", c.in, c.campaign, got)
		}
	}
	if got := p.run("codes", "export", "nobody"); got.code != cli.ExitRefused || !strings.Contains(got.out, "campaign_not_found") {
		t.Errorf("export of nothing: %+v", got)
	}
}
