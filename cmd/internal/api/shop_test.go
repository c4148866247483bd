package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestLimitedKeysDoNotWaitForTheTables: a key that is limited to campaigns redeems codes without naming the campaign at its pace
// while the read tables do not answer.
func TestLimitedKeysDoNotWaitForTheTables(t *testing.T) {
	r := apitest.Shared(t)
	c := r.Campaign(t, map[string]any{"codes": 20})
	other := r.Claim(t, r.Campaign(t, map[string]any{"codes": 1}), "bob")
	limited := "producer+" + c
	r.Key(t, limited)
	codes := make([]string, 12)
	for i := range codes {
		codes[i] = r.Claim(t, c, fmt.Sprint("customer", i))
	}
	apitest.Until(t, "the tables have all", func() bool { return len(find(t, r, "", "campaign="+c).Items) == len(codes) })
	db, err := pgx.Connect(t.Context(), r.Postgres)
	streamtest.Must(t, err)
	defer db.Close(t.Context())
	if _, err := db.Exec(t.Context(), "BEGIN; LOCK TABLE scrip.coupon, scrip_tables.coupon_event, scrip_tables.redemption_row IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	for i, code := range codes {
		use := map[string]any{"code": code, "order_id": fmt.Sprint("order", i)}
		r.Ask(t, limited, "POST", "/v1/validations", use).Want(t, 200)
		r.Ask(t, limited, "POST", "/v1/redemptions", use).Want(t, 201)
	}
	// Each history that is waited for takes 2 s.
	if took := time.Since(started); took > time.Duration(len(codes))*2*time.Second {
		t.Errorf("%d redemptions took %s", len(codes), took)
	}
	for _, code := range []string{other, "AAAA-AAAA-AAAA"} {
		r.Ask(t, limited, "POST", "/v1/redemptions", map[string]any{"code": code, "order_id": "o"}).Problem(t, 404, "code_not_found", "")
	}
	another := map[string]any{"code": codes[0], "order_id": "another"}
	r.Ask(t, limited, "POST", "/v1/redemptions", another).Problem(t, 409, "already_redeemed", "")
}

// TestAPublicKeyGetsNoCodeOfAnEarlierClaim: with the key of a page anybody may name any customer. The code comes with the first answer
// and with repeats of that request.
func TestAPublicKeyGetsNoCodeOfAnEarlierClaim(t *testing.T) {
	r := apitest.Shared(t)
	c := r.Campaign(t, map[string]any{"codes": 3})
	page, shop := "producer+public", "producer"
	r.Key(t, page)
	r.Key(t, shop)
	claim := func(as, customer string, header ...string) *apitest.Response {
		return r.Ask(t, as, "POST", "/v1/campaigns/"+c+"/claims", map[string]any{"customer_id": customer}, header...)
	}
	code := claim(page, "ann", "Idempotency-Key", "random-1").Want(t, 201).Object(t)["code"]
	if again := claim(page, "ann", "Idempotency-Key", "random-1").Want(t, 200).Object(t); code == nil || again["code"] != code {
		t.Errorf("claimed %v, then %v", code, again)
	}
	for _, header := range [][]string{nil, {"Idempotency-Key", "random-2"}} {
		got := claim(page, "ann", header...).Want(t, 200)
		if v := got.Object(t); v["code"] != nil || v["n"] != nil || v["status"] != "claimed" || v["repeat"] != true || got.Header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%v: %s", header, got.Body)
		}
	}
	claim(page, "bob", "Idempotency-Key", "random-1").Problem(t, 422, "idempotency_key_reused", "")
	if got := claim(shop, "ann").Want(t, 200).Object(t); got["code"] != code {
		t.Errorf("the shop gets %v, want %v", got, code)
	}
	// What became of the coupon is for who may have its code.
	r.Ask(t, "", "POST", "/v1/redemptions", map[string]any{"code": code, "order_id": "o1"}).Want(t, 201)
	for _, is := range []struct {
		as, key string
		want    any
	}{{page, "random-1", "redeemed"}, {page, "random-2", nil}, {shop, "random-2", "redeemed"}} {
		if v := claim(is.as, "ann", "Idempotency-Key", is.key).Want(t, 200).Object(t); v["coupon_status"] != is.want {
			t.Errorf("%s is shown %v, want %v", is.as, v, is.want)
		}
	}
	// A claim that another key's id made is not this request's.
	other := claim(shop, "eve", "Idempotency-Key", "random-3").Want(t, 201).Object(t)["code"]
	if got := claim(page, "eve", "Idempotency-Key", "random-3").Want(t, 200).Object(t); got["code"] != nil {
		t.Errorf("the page gets %v of %v", got, other)
	}
	line := `{"id":"x","type":"claim","campaign":"` + c + `","customer_id":"ann"}`
	r.Ask(t, page, "POST", "/v1/commands", line, "Content-Type", "application/x-ndjson").Problem(t, 403, "forbidden", "")
}

// TestManyCommands: lines in one request; each has its outcome, in their order.
func TestManyCommands(t *testing.T) {
	r := apitest.Shared(t)
	c, other := r.Campaign(t, map[string]any{"codes": 200}), r.Campaign(t, map[string]any{"codes": 200})
	limited := "producer+" + c
	r.Key(t, limited)
	var lines strings.Builder
	for i := range 150 {
		fmt.Fprintf(&lines, `{"id":"l%d","type":"claim","campaign":"%s","customer_id":"customer %d"}`+"\n\n", i, []string{c, other}[i%2], i)
	}
	lines.WriteString(`{"id":"p","type":"pause_campaign","campaign":"` + c + `"}` + "\n" + `{"id":"b","type":"claim","campaign":"` + c + `"}` + "\nnot JSON\n" + `{"id":"u","type":"redeem","code":"AAAA-AAAA-AAAA","order_id":"o"}`)
	send := func(as string) []string {
		answer := r.Ask(t, as, "POST", "/v1/commands", lines.String(), "Content-Type", "application/x-ndjson").Want(t, 200)
		all := strings.Split(strings.TrimSpace(string(answer.Body)), "\n")
		if len(all) != 154 {
			t.Fatalf("%d outcomes", len(all))
		}
		return all
	}
	for pass, as := range []string{"", limited} {
		for i, line := range send(as) {
			want := []string{fmt.Sprintf(`{"id":"l%d","status":"claimed"`, i)}
			switch {
			case i == 150:
				want = []string{`{"id":"p","status":"refused","refusal":"invalid"`}
			case i == 151:
				want = []string{`{"id":"b","status":"refused","refusal":"invalid"`, "customer_id"}
			case i == 152:
				want = []string{`"refusal":"invalid"`}
			case i == 153:
				want = []string{`{"id":"u","status":"refused","refusal":"code_not_found"`}
			case as != "" && i%2 == 1:
				want = []string{`"refusal":"forbidden"`}
			case pass == 1:
				want = append(want, `"repeat":true`)
			}
			for _, w := range want {
				if !strings.Contains(line, w) {
					t.Errorf("line %d as %q: %s, want %s", i, as, line, w)
				}
			}
		}
	}
	// Codes of a limited key: their campaign is looked up, and lines keep their order.
	code, foreign := r.Claim(t, c, "fay"), r.Claim(t, other, "fay")
	var uses string
	for i, use := range []struct{ kind, code string }{{"redeem", code}, {"rollback", code}, {"redeem", code}, {"redeem", foreign}} {
		uses += fmt.Sprintf(`{"id":"use%d","type":"%s","code":"%s","order_id":"o"}`+"\n", i, use.kind, use.code)
	}
	answer := string(r.Ask(t, limited, "POST", "/v1/commands", uses, "Content-Type", "application/x-ndjson").Want(t, 200).Body)
	for i, want := range []string{`"status":"redeemed"`, `"status":"rolled_back"`, `"status":"redeemed"`, `"refusal":"code_not_found"`} {
		if line := strings.Split(answer, "\n")[i]; !strings.Contains(line, want) || strings.Contains(line, `"repeat"`) {
			t.Errorf("%s, want %s", line, want)
		}
	}
	for _, body := range []string{"\n\n", strings.Repeat("{}\n", 1001)} {
		r.Ask(t, "", "POST", "/v1/commands", body, "Content-Type", "application/x-ndjson").Problem(t, 422, "invalid", "body")
	}
	r.Ask(t, "", "POST", "/v1/commands", strings.Repeat("x", 300<<10), "Content-Type", "application/x-ndjson").Problem(t, 413, "too_large", "")
	r.Ask(t, "", "POST", "/v1/commands", "{}").Problem(t, 415, "wrong_media_type", "")
}
