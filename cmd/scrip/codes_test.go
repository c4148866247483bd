package main

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestCodes: a CSV file is imported, and the claimed codes are exported. What is read and refused of a file is shown by the packages
// codescsv and client.
func TestCodes(t *testing.T) {
	p := shared(t)
	p.must("campaign", "create", "partner", "--codes", "0")
	dir := t.TempDir()
	file, rejects, exported := filepath.Join(dir, "codes.csv"), filepath.Join(dir, "bad.csv"), filepath.Join(dir, "exported.csv")
	streamtest.Must(t, os.WriteFile(file, []byte("\ufeffid,code\r\n1,aaa-1\r\n\r\n2,AAA-2\r\n3,AAA 3\r\n4,AAA-2\r\n5,AAA-4\r\n"), 0o600))
	p.expect(cli.ExitRefused, `"rows":5,"count":3,"already_there":0,"duplicates":1,"rejected":1`,
		"codes", "import", "partner", file, "-o", "json", "--rejects", rejects, "--id", "import-1", "--weak-codes")
	p.row("partner", `SELECT campaign FROM scrip.campaign WHERE campaign = 'partner'`)
	p.expect(cli.ExitDone, "", "codes", "export", "partner", "--file", exported)
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
	for _, c := range []struct {
		in, campaign string
		code         int
		want         string
	}{
		{"BBB-1\nBBB-2\n", "partner", cli.ExitDone, `"count":2`}, {"AAA-90001\n", "nobody", cli.ExitRefused, "campaign_not_found"}, {"", "partner", cli.ExitRefused, "invalid"},
	} {
		got := scripWith(t, strings.NewReader(c.in), nil, "codes", "import", c.campaign, "--data", p.Data, "-o", "json", "--weak-codes")
		if got.code != c.code || !strings.Contains(got.out, c.want) {
			t.Errorf("importing %q into %s: %+v", c.in, c.campaign, got)
		}
	}
	for n, want := range []string{"AAA-1", "AAA-2", "AAA-4", "BBB-1"} {
		if c := p.must("claim", "partner", "--customer", []string{"0", "1", "2", "=cmd"}[n]); c["code"] != want {
			t.Errorf("claim %d: %v, want %s", n+1, c, want)
		}
	}
	p.row("4", `SELECT count(*)::text FROM scrip.coupon WHERE campaign = 'partner'`)
	export := func(args ...string) (result, [][]string) {
		t.Helper()
		got := p.run(append([]string{"codes", "export", "partner"}, args...)...)
		rows, err := csv.NewReader(strings.NewReader(got.out)).ReadAll()
		if got.code != cli.ExitDone || err != nil || len(rows) != 5 {
			t.Fatalf("export %v: %+v, %v", args, got, err)
		}
		return got, rows
	}
	if _, rows := export(); rows[0][2] != "code" || fmt.Sprint(rows[3][2:4]) != "[AAA-4 2]" {
		t.Errorf("export: %v", rows)
	}
	if got := p.run("codes", "export", "partner", "-o", "json"); got.code != 0 || strings.Count(got.out, `"campaign":"partner"`) != 4 {
		t.Errorf("export as JSON: %+v", got)
	}
	// For people: no codes, no formulas. The same key gives the same masks wherever it is used, so they can be joined.
	key := filepath.Join(dir, "mask.key")
	got, rows := export("--mask-codes", key)
	if !strings.HasPrefix(rows[1][2], "masked-") || strings.Contains(got.out, "AAA-1") || rows[4][3] != "'=cmd" {
		t.Errorf("export for people: %+v", got)
	}
	if got := p.run("replay", "--type", "coupon.claimed", "--mask-codes", key); got.code != 0 || !strings.Contains(got.out, rows[1][2]) || strings.Contains(got.out, "AAA-1") {
		t.Errorf("replay: %+v", got)
	}
	p.expect(cli.ExitRefused, "campaign_not_found", "codes", "export", "nobody")
}
