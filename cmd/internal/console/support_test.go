package console_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// TestSearch: the box takes all that names a thing, as people type it, also names that are scripts. One thing is shown at once,
// several to choose from. What cannot be a code does not cost the allowance for wrong codes.
func TestSearch(t *testing.T) {
	th := fill(t, serve(t))
	both := "x/" + script + "//.."
	th.Redeem(t, th.Claim(t, th.campaign, both), both)
	apitest.Until(t, "the tables have the redemption", func() bool {
		return len(th.Ask(t, "", "GET", "/v1/coupons?order_id="+url.QueryEscape(both), nil).Want(t, 200).Object(t)["items"].([]any)) == 1
	})
	s := logIn(t, th.Rig, "support+customers")
	find := func(q string) (status int, to, body string) { return s.post(t, "/search", url.Values{"q": {q}}) }
	coupon := "/coupons/" + th.campaign + "/1"
	for q, want := range map[string]string{
		th.code: coupon, " " + strings.ToLower(strings.ReplaceAll(th.code, "-", " ")): coupon, th.campaign + " " + th.code: coupon,
		th.campaign + " 1": coupon, th.campaign + " ****-****-" + th.code[len(th.code)-4:]: coupon,
		th.campaign: "/campaigns/" + th.campaign, th.customer: "/customers/" + url.PathEscape(th.customer), th.order: "/orders/" + url.PathEscape(th.order),
	} {
		if status, to, body := find(q); status != http.StatusSeeOther || to != want {
			t.Errorf("%q leads to %d %q, want %q\n%s", q, status, to, want, main(body))
			continue
		}
		if body, _ := s.get(t, want, http.StatusOK); strings.Contains(body, "<script>document") {
			t.Errorf("%s has a script that is a name", want)
		}
	}
	if status, _, body := find(both); status != http.StatusOK || strings.Count(body, url.PathEscape(both)) != 2 {
		t.Errorf("a customer and an order of one name: %d %s", status, main(body))
	}
	for _, q := range []string{"order-100200300400", "..", "nothing/at?all#%", "customer 42", "ann"} {
		if status, _, body := find(q); status != http.StatusOK || !strings.Contains(body, "Nothing is called that") || strings.Contains(body, `role="alert"`) {
			t.Errorf("%q: %d %s", q, status, main(body))
		}
	}
	find("AAAA-AAAA-AAAA")
	if metrics := string(th.Ask(t, "-", "GET", "/metrics", nil).Want(t, 200).Body); !strings.Contains(metrics, `scrip_wrong_codes_total{budget="key"} 1`+"\n") {
		t.Error("not the one wrong code was counted")
	}

	for path, want := range map[string]string{
		"/customers/" + url.PathEscape(both): "/orders/" + url.PathEscape(both), "/orders/" + url.PathEscape(both): "/customers/" + url.PathEscape(both),
		coupon: "/customers/" + url.PathEscape(th.customer),
	} {
		if body, _ := s.get(t, path, http.StatusOK); !strings.Contains(body, `href="`+strings.ReplaceAll(want, "&", "&amp;")+`"`) || !strings.Contains(body, "/acts/rollback?") && path != "/customers/"+url.PathEscape(both) {
			t.Errorf("%s has no link to %s, or no roll-back\n%s", path, want, main(body))
		}
	}
	reminded := "r" + script
	th.Claim(t, th.campaign, reminded)
	if _, err := th.Shop.Remind(t.Context(), th.campaign, reminded, "expires", 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	owner := logIn(t, th.Rig, "")
	apitest.Until(t, "the customer's page has the reminder", func() bool {
		body, _ := owner.get(t, "/customers/"+url.PathEscape(reminded), http.StatusOK)
		return strings.Contains(body, "10m before the coupon expires") && strings.Contains(body, "/acts/cancelReminder?")
	})
	if body, _ := owner.get(t, "/coupons/"+th.campaign+"/3", http.StatusOK); !strings.Contains(body, th.batch) {
		t.Errorf("a coupon for print without its batch\n%s", main(body))
	}
	body, _ := s.get(t, "/customers/"+url.PathEscape(th.customer)+"/export", http.StatusOK)
	var page struct {
		Customer string `json:"customer_id"`
		Items    []any
		History  []struct{ ID, What string }
	}
	var optOut ops.OptOutShown
	lines := json.NewDecoder(strings.NewReader(body))
	if err := errors.Join(lines.Decode(&page), lines.Decode(&optOut)); err != nil || optOut.CustomerID != th.customer || page.Customer != th.customer || len(page.Items) != 1 || len(page.History) != 2 {
		t.Fatalf("the export: %v\n%s", err, body)
	}
	if _, _, body := find(page.History[0].ID); !strings.Contains(body, "What the command did") || !strings.Contains(body, `href="`+coupon+`"`) {
		t.Errorf("the id of a command: %s", main(body))
	}
}
