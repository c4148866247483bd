package contract

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// importInto imports a CSV file from standard input.
func (r *rig) importInto(t *testing.T, campaign, csv string, args ...string) ran {
	t.Helper()
	sh := r.shell()
	sh.in = strings.NewReader(csv)
	return sh.run(t, append([]string{"codes", "import", campaign, "-o", "json"}, args...)...)
}

// TestCSVFilesAsPeopleHaveThem: a byte-order mark, CRLF, empty rows, other columns and duplicates do no harm.
func TestCSVFilesAsPeopleHaveThem(t *testing.T) {
	r := server(t)
	for _, file := range []struct {
		name, csv  string
		codes      string // in their order
		duplicates int
	}{
		{"plain", "AAA\nBBB\nCCC\n", "AAA BBB CCC", 0},
		{"no newline at the end", "AAA\nBBB", "AAA BBB", 0},
		{"a header", "code\nAAA\n", "AAA", 0},
		{"other columns", "name,Code,price\nx,AAA,1\ny,BBB,2\n", "AAA BBB", 0},
		{"byte-order mark", "\ufeffAAA\nBBB\n", "AAA BBB", 0},
		{"byte-order mark and header", "\ufeffcode\r\nAAA\r\nBBB\r\n", "AAA BBB", 0},
		{"CRLF", "AAA\r\nBBB\r\n", "AAA BBB", 0},
		{"empty rows", "\n\nAAA\n\n,,\n   \nBBB\n\n", "AAA BBB", 0},
		{"duplicates", "AAA\nBBB\naaa\nAAA\n", "AAA BBB", 2},
		{"quotes and semicolons", "\"code\";\"x\"\n\"AAA\";\"1\"\n\"BBB\";\"2\"\n", "AAA BBB", 0},
		{"lower case and spaces around", "aaa\n bbb \n", "AAA BBB", 0},
	} {
		c := r.campaign(t, `"codes":0`)
		got := r.importInto(t, c, file.csv, "--id", "i-"+c)
		n := len(strings.Fields(file.codes))
		if got.code != 0 || got.err != "" {
			t.Errorf("%s: %+v", file.name, got)
			continue
		}
		match(t, []byte(strings.TrimSuffix(got.out, "\n")), fmt.Sprintf(`{"id":"i-%s","status":"imported","campaign":"%s","rows":%d,"count":%d,"already_there":0,"duplicates":%d,"rejected":0}`,
			c, c, n+file.duplicates, n, file.duplicates))
		for i, want := range strings.Fields(file.codes) {
			if code := r.claim(t, c, fmt.Sprint("customer-", i)); code != want {
				t.Errorf("%s: code %d is %s, want %s", file.name, i+1, code, want)
			}
		}
		r.claims(t, c, "late", "sold_out")
	}
}

// TestBadRowsAreTold with their number and what to do; the good rows around them are imported; a second import of the
// mended file adds what is missing.
func TestBadRowsAreTold(t *testing.T) {
	r := server(t)
	c := r.campaign(t, `"codes":0`)
	rejects := filepath.Join(t.TempDir(), "rejects.csv")
	const csv = "code\nGOOD-1\nx\nGOOD-2\nw r o n g\nGO\u00d6D\n" + "GOOD-3\n"
	got := r.importInto(t, c, csv)
	if got.code != 3 {
		t.Errorf("exit %d, want 3", got.code)
	}
	match(t, []byte(strings.TrimSuffix(got.out, "\n")), `{"id":"~uuid7","status":"imported","campaign":"`+c+`","rows":6,"count":3,"already_there":0,"duplicates":0,"rejected":3}`)
	for _, says := range []string{"row 3: ", "row 5: ", "row 6: ", "3 to 64"} {
		if !strings.Contains(got.err, says) {
			t.Errorf("standard error does not say %q:\n%s", says, got.err)
		}
	}
	got = r.importInto(t, c, csv, "--rejects", rejects)
	match(t, []byte(strings.TrimSuffix(got.out, "\n")), `{"id":"~uuid7","status":"imported","campaign":"`+c+`","rows":6,"count":0,"already_there":3,"duplicates":0,"rejected":3}`)
	if file, err := os.ReadFile(rejects); err != nil || bytes.Count(file, []byte("\n")) != 4 || !bytes.Contains(file, []byte("\n3,x,")) {
		t.Errorf("the file of bad rows: %v\n%s", err, file)
	}
	got = r.importInto(t, c, strings.NewReplacer("x\n", "XXX\n", "w r o n g", "RIGHT", "\u00d6", "O").Replace(csv))
	match(t, []byte(strings.TrimSuffix(got.out, "\n")), `{"id":"~uuid7","status":"imported","campaign":"`+c+`","rows":6,"count":3,"already_there":3,"duplicates":0,"rejected":0}`)
	matchRows(t, r.rows(t, `SELECT codes FROM scrip.campaign WHERE campaign = $1`, c), `{"codes":6}`)

	if got := r.importInto(t, "absent", csv); got.code != 3 || !strings.Contains(got.out, "campaign_not_found") {
		t.Errorf("into no campaign: %+v", got)
	}
	made := r.campaign(t, `"codes":5`)
	if got := r.importInto(t, made, "AAA\n"); got.code != 3 || !strings.Contains(got.out, `"invalid"`) || !strings.Contains(got.out, "codes 0") {
		t.Errorf("into a campaign of generated codes: %+v", got)
	}
	if got := r.importInto(t, c, ""); got.code != 3 || !strings.Contains(got.out, "at least one") {
		t.Errorf("an empty file: %+v", got)
	}
}

// TestAMillionRows, some of them twice.
func TestAMillionRows(t *testing.T) {
	const codes = 1_000_000
	r := server(t)
	c := r.campaign(t, `"codes":0`)
	var csv bytes.Buffer
	csv.WriteString("\ufeffcode,note\r\n")
	for i := range codes {
		fmt.Fprintf(&csv, "CODE-%07d,x\r\n", i)
		if i%1000 == 0 {
			fmt.Fprintf(&csv, "code-%07d,again\r\n", i)
		}
	}
	file := filepath.Join(t.TempDir(), "codes.csv")
	if err := os.WriteFile(file, csv.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	match(t, r.shell().json(t, 0, "codes", "import", c, file, "--id", "million"),
		fmt.Sprintf(`{"id":"million","status":"imported","campaign":"%s","rows":%d,"count":%d,"already_there":0,"duplicates":%d,"rejected":0}`, c, codes+codes/1000, codes, codes/1000))
	if code := r.claim(t, c, "first"); code != "CODE-0000000" {
		t.Errorf("the first code handed out is %s", code)
	}
	matchRows(t, r.rows(t, `SELECT codes, claimed FROM scrip.campaign WHERE campaign = $1`, c), fmt.Sprintf(`{"codes":%d,"claimed":1}`, codes))
	match(t, r.request(t, "scrip.redeem", `{"id":"r","campaign":"`+c+`","code":"CODE-0000000","order_id":"o"}`),
		`{"id":"r","status":"redeemed","campaign":"`+c+`","n":1,"code":"CODE-0000000","?order_id":"o","redeemed_count":1}`)
}
