package api_test

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

type progress struct {
	Status, Refusal, Message       string
	Done, Rows, Duplicates         int
	Count, Already_There, Rejected int
	Rejects                        []struct{ Row int }
}

// imported sends a file and returns the lines of the answer.
func imported(t *testing.T, r *apitest.Rig, campaign, key, file string) (all []progress) {
	t.Helper()
	answer := r.Ask(t, "", "POST", "/v1/campaigns/"+campaign+"/codes", file, "Content-Type", "text/csv", "Idempotency-Key", key).Want(t, 200)
	for line := range strings.Lines(string(answer.Body)) {
		var p progress
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, p)
	}
	return all
}

// TestImportAndExport: a file with bad rows, sent again to resume it, and exported after some claims.
func TestImportAndExport(t *testing.T) {
	r := apitest.Shared(t)
	c := r.Campaign(t, map[string]any{"codes": 0})
	var file strings.Builder
	file.WriteString("code;comment\n")
	for i := range 3000 {
		fmt.Fprintf(&file, "SUMMER-%05d;x\n", i)
	}
	file.WriteString("a;too short\nsummer-00001;again\n")
	half := file.String()[:len(file.String())/2]
	half = half[:strings.LastIndexByte(half, '\n')+1]
	first := imported(t, r, c, "i1", half)
	if last := first[len(first)-1]; last.Status != "imported" || last.Count == 0 || last.Count != last.Rows {
		t.Errorf("%+v", last)
	}
	all := imported(t, r, c, "i2", file.String())
	last := all[len(all)-1]
	if all[0].Status != "importing" || last.Status != "imported" || last.Rows != 3002 || last.Duplicates != 1 || last.Rejected != 1 || last.Count+last.Already_There != 3000 ||
		last.Already_There == 0 || len(last.Rejects) != 1 || last.Rejects[0].Row != 3002 {
		t.Errorf("%+v", last)
	}
	if none := imported(t, r, c, "i3", "code\n"); none[len(none)-1].Status != "refused" {
		t.Errorf("%+v", none)
	}
	for i := range 5 {
		r.Claim(t, c, fmt.Sprintf("=cmd%d", i))
	}
	order := apitest.Name("o")
	r.Redeem(t, "SUMMER-00000", order, client.Campaign(c))
	apitest.Until(t, "the tables have all", func() bool {
		return len(find(t, r, "", "campaign="+c).Items) == 5 && len(find(t, r, "", "order_id="+order).Items) == 1
	})
	export := func(as string) [][]string {
		answer := r.Ask(t, as, "GET", "/v1/campaigns/"+c+"/codes", nil).Want(t, 200)
		rows, err := csv.NewReader(strings.NewReader(string(answer.Body))).ReadAll()
		if err != nil || len(rows) != 6 || !strings.Contains(answer.Header.Get("Content-Disposition"), c+".csv") {
			t.Fatalf("%v: %s", err, answer.Body)
		}
		return rows
	}
	r.Key(t, "operator")
	r.Key(t, "operator+clear")
	clear, masked := export("operator+clear"), export("operator")
	if clear[1][2] != "SUMMER-00000" || clear[1][4] != "redeemed" || clear[5][3] != "'=cmd4" {
		t.Errorf("%v", clear)
	}
	if !strings.HasPrefix(masked[1][2], "masked-") || masked[1][2] == masked[2][2] {
		t.Errorf("%v", masked)
	}
	if entries := r.Ask(t, "", "GET", "/v1/audit?kind=export", nil); strings.Count(string(entries.Body), `"about":"`+c+`"`) != 2 {
		t.Errorf("%s", entries.Body)
	}
}

// TestAllotments: a batch is made once, listed, and printed from any of its coupons on, for those who see codes.
func TestAllotments(t *testing.T) {
	r := apitest.Shared(t)
	r.Key(t, "operator")
	r.Key(t, "operator+clear")
	c := r.Campaign(t, map[string]any{"codes": 9, "prefix": "sun"})
	path := "/v1/campaigns/" + c + "/allotments"
	ask := func(path string, count any, batch string, status int, code string) *apitest.Response {
		t.Helper()
		got := r.Ask(t, "operator", "POST", path, map[string]any{"count": count, "batch": batch}).Want(t, status)
		if code != "" && got.Object(t)["code"] != code {
			t.Errorf("%v %s: %s, want %s", count, batch, got.Body, code)
		}
		return got
	}
	if at := ask(path, 3, "flyer", 201, "").Header.Get("Location"); at != path+"/flyer/codes" {
		t.Error(at)
	}
	ask(path, 3, "flyer", 200, "")
	ask(path, 4, "flyer", 409, "batch_exists")
	ask(path, 0, "none", 422, "invalid")
	ask(path, 1, "a b", 422, "invalid")
	ask(path, 7, "many", 409, "sold_out")
	ask(path, 6, "rest", 201, "")
	ask("/v1/campaigns/"+r.Campaign(t, map[string]any{"codes": 0})+"/allotments", 1, "flyer", 422, "invalid")
	first := r.Ask(t, "operator", "GET", path+"?limit=1", nil).Want(t, 200).Object(t)
	second := r.Ask(t, "operator", "GET", path+"?limit=1&after="+first["next"].(string), nil).Want(t, 200).Object(t)
	if a := second["items"].([]any)[0].(map[string]any); a["batch"] != "rest" || a["from_n"] != 4.0 || a["through_n"] != 9.0 || second["next"] != nil {
		t.Errorf("%v then %v", first, second)
	}
	all := string(r.Ask(t, "operator+clear", "GET", path+"/flyer/codes", nil).Want(t, 200).Body)
	rest := string(r.Ask(t, "operator+clear", "GET", path+"/flyer/codes?from_n=3", nil).Want(t, 200).Body)
	rows := strings.SplitAfter(all, "\n")
	if len(rows) != 5 || rows[0] != "campaign,n,code\n" || !strings.HasPrefix(rows[1], c+",1,SUN-") || rest != rows[3] {
		t.Errorf("%q and %q", all, rest)
	}
	r.Ask(t, "operator", "GET", path+"/flyer/codes", nil).Want(t, 403)
	r.Ask(t, "operator+clear", "GET", path+"/flyer/codes?from_n=5", nil).Want(t, 422)
	r.Ask(t, "operator+clear", "GET", path+"/none/codes", nil).Want(t, 404)
	if entries := r.Ask(t, "", "GET", "/v1/audit?kind=export", nil); strings.Count(string(entries.Body), `"about":"`+c+` flyer from`) != 2 {
		t.Errorf("%s", entries.Body)
	}
}

// TestACorrectedFileUnderTheSameKey: its corrections are imported, and its report counts the codes of this file.
func TestACorrectedFileUnderTheSameKey(t *testing.T) {
	r := apitest.Shared(t)
	c := r.Campaign(t, map[string]any{"codes": 0})
	for _, file := range []struct {
		rows                   string
		count, there, rejected int
	}{
		{"GOOD-0001\nGOOD-0002\nno code\n", 2, 0, 1},
		{"GOOD-0001\nGOOD-0002\nGOOD-0003\n", 1, 2, 0},
		{"GOOD-0001\nGOOD-0002\nGOOD-0003\n", 1, 2, 0}, // a repeat has the first answer
		{"GOOD-0002\n", 0, 1, 0},
	} {
		all := imported(t, r, c, "list", file.rows)
		last := all[len(all)-1]
		if last.Status != "imported" || last.Count != file.count || last.Already_There != file.there || last.Rejected != file.rejected {
			t.Errorf("%q: %+v", file.rows, last)
		}
	}
	// Codes that can be guessed are rejected, unless they are meant.
	for query, want := range map[string]progress{"": {Status: "refused"}, "?weak_codes=1": {Status: "imported", Count: 1}} {
		answer := r.Ask(t, "", "POST", "/v1/campaigns/"+c+"/codes"+query, "WEAK-67\n", "Content-Type", "text/csv").Want(t, 200)
		var last progress
		lines := strings.Split(strings.TrimSpace(string(answer.Body)), "\n")
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Status != want.Status || last.Count != want.Count || last.Rejected != 1-want.Count {
			t.Errorf("%s: %s, %v", query, answer.Body, err)
		}
	}
	for i, want := range []string{"GOOD-0001", "GOOD-0002", "GOOD-0003"} {
		if code := r.Claim(t, c, fmt.Sprint("customer", i)); code != want {
			t.Errorf("claimed %s, want %s", code, want)
		}
	}
}

// TestAnImportShowsItsProgress: the first line comes before the body has ended; further ones, while it is sent, count what was
// decided; the last one is the report.
func TestAnImportShowsItsProgress(t *testing.T) {
	r := apitest.Shared(t)
	c := r.Campaign(t, map[string]any{"codes": 0})
	body, writer := io.Pipe()
	defer writer.Close()
	resp, err := http.DefaultClient.Do(r.Request(t, "", "POST", "/v1/campaigns/"+c+"/codes", body, "Content-Type", "text/csv"))
	streamtest.Must(t, err)
	defer resp.Body.Close()
	lines := make(chan progress, 1000)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(resp.Body); s.Scan(); {
			var p progress
			if err := json.Unmarshal(s.Bytes(), &p); err != nil {
				t.Error(err)
			}
			lines <- p
		}
	}()
	if first := <-lines; first.Status != "importing" || first.Done != 0 {
		t.Errorf("%+v", first)
	}
	sent := 0
	for p := (progress{}); p.Done == 0; { // until a line of progress counts a code
		for range 2000 { // more than a line of the log has room for
			if _, err := fmt.Fprintf(writer, "PROGRESS-%d\n", sent); err != nil {
				t.Fatal(err)
			}
			sent++
		}
		select {
		case p = <-lines:
		case <-time.After(progressEvery / 5):
		}
		if sent > 200_000 {
			t.Fatal("no line of progress counts a code")
		}
	}
	_ = writer.Close()
	var last progress
	for last = range lines {
	}
	if last.Status != "imported" || last.Count != sent {
		t.Errorf("of %d codes: %+v", sent, last)
	}
}

// progressEvery is the interval of lines of progress.
const progressEvery = time.Second
