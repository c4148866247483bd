package console_test

import (
	"bufio"
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/console"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
)

var (
	hrefs    = regexp.MustCompile(`href="([^"]*)"`)
	forms    = regexp.MustCompile(`(?s)<form([^>]*)>(.*?)</form>`)
	controls = regexp.MustCompile(`(?s)<(input|textarea|select)([^>]*)>(?:([^<]*)</textarea>|((?:<option.*?</option>\s*)*)</select>)?`)
	options  = regexp.MustCompile(`<option([^>]*)>([^<]*)`)
	mark     = regexp.MustCompile(`([a-z-]+)(?:="([^"]*)")?`)
)

// marks are the attributes of an element.
func marks(of string) map[string]string {
	all := map[string]string{}
	for _, m := range mark.FindAllStringSubmatch(of, -1) {
		all[m[1]] = html.UnescapeString(m[2])
	}
	return all
}

// sheet is a form of a page.
type sheet struct {
	method, action string
	values         url.Values
	required       []string
	choices        map[string][]string
}

// sheets are the forms of the main part of a page.
func sheets(body string) (all []sheet) {
	for _, m := range forms.FindAllStringSubmatch(main(body), -1) {
		of := marks(m[1])
		s := sheet{of["method"], of["action"], url.Values{}, nil, map[string][]string{}}
		for _, c := range controls.FindAllStringSubmatch(m[2], -1) {
			is := marks(c[2])
			value := is["value"]
			if c[1] == "textarea" {
				value = html.UnescapeString(c[3])
			}
			for _, o := range options.FindAllStringSubmatch(c[4], -1) {
				choice := html.UnescapeString(strings.TrimSpace(o[2]))
				if v, has := marks(o[1])["value"]; has {
					choice = v
				}
				if s.choices[is["name"]] = append(s.choices[is["name"]], choice); strings.Contains(o[1], "selected") {
					value = choice
				}
			}
			if _, checked := is["checked"]; is["type"] != "checkbox" || checked {
				s.values.Set(is["name"], value)
			}
			if regexp.MustCompile(`for="f-` + regexp.QuoteMeta(is["name"]) + `">[^<]* <span class="required"`).MatchString(m[2]) {
				s.required = append(s.required, is["name"])
			}
		}
		all = append(all, s)
	}
	return all
}

// helpers and those who are limited to a campaign may do these acts alone.
var (
	helpersDo = []string{"voidCoupon", "extendCoupon", "rollback", "voidCoupons", "extendCoupons", "stopJob"}
	limitedDo = append([]string{"createCampaign", "updateCampaign", "pauseCampaign", "resumeCampaign", "endCampaign", "cloneCampaign", "allotCoupons", "redeem", "setReminder", "cancelReminder"}, helpersDo...)
)

// walker walks through all that a role is shown.
type walker struct {
	*session
	*things
	role, other string
	codes       []string
	seen        map[string]bool
	acts        map[string]string // by id: the path of the form
}

// allowed reports whether the role may do an act.
func (w *walker) allowed(act string) bool {
	switch {
	case strings.HasPrefix(w.role, "support"):
		return slices.Contains(helpersDo, act) || !strings.Contains(w.role, w.campaign) && (act == "addOptOut" || act == "removeOptOut")
	case strings.HasPrefix(w.role, "analyst"):
		return false
	}
	return w.role == "operator" || w.role == "operator+clear" || slices.Contains(limitedDo, act)
}

// check fails the test for what no page may have.
func (w *walker) check(t *testing.T, path, body string) {
	t.Helper()
	if strings.Contains(body, "cannot be rendered") || strings.HasPrefix(body, "<!doctype") && strings.Contains(body, "<script>document") {
		t.Errorf("%s: %s cannot be rendered, or has a script that is a name\n%s", w.role, path, main(body))
	}
	folded := strings.ReplaceAll(body, "-", "")
	for _, code := range w.codes {
		if !strings.HasSuffix(w.role, "+clear") && strings.Contains(folded, code) {
			t.Errorf("%s: %s has a code in clear", w.role, path)
		}
	}
	other := regexp.MustCompile(`\b` + w.other + `\b`) // not the middle of an id
	if strings.Contains(w.role, w.campaign) && other.MatchString(body) && !strings.Contains(path, w.other) {
		t.Errorf("%s: %s has another campaign", w.role, path)
	}
}

// walk opens all pages, forms and filters that links lead to, breadth first. No link has the mask of a customer.
func (w *walker) walk(t *testing.T) {
	t.Helper()
	for queue := []string{"/"}; len(queue) > 0; queue = queue[1:] {
		path := queue[0]
		want := []int{http.StatusOK}
		if path == "/" && w.role != "operator" && w.role != "operator+clear" {
			want = []int{http.StatusSeeOther} // it is that of operators; others go to their first page
		}
		body, to := w.get(t, path, want...)
		w.check(t, path, body)
		next := []string{to}
		for _, m := range hrefs.FindAllStringSubmatch(body, -1) {
			next = append(next, html.UnescapeString(m[1]))
		}
		for _, s := range sheets(body) {
			if s.method != "get" {
				continue
			}
			for name := range s.values {
				for _, value := range append(s.choices[name], script) {
					with := url.Values{name: {value}}
					odd, _ := w.get(t, s.action+"?"+with.Encode(), http.StatusOK)
					w.check(t, s.action+" "+name, odd)
				}
			}
		}
		for _, link := range next {
			u, err := url.Parse(link)
			if err != nil || u.Host != "" || !strings.HasPrefix(link, "/") || strings.HasPrefix(link, "/assets/") {
				continue
			}
			if strings.HasPrefix(u.Query().Get("customer_id"), "masked-") || strings.HasPrefix(u.Path, "/customers/masked-") {
				t.Errorf("%s: %s leads to %s: no request takes a mask as a customer", w.role, path, link)
			}
			key := link
			if act, is := strings.CutPrefix(u.Path, "/acts/"); is { // one of each kind
				if key = u.Path; w.acts[act] == "" || strings.Contains(link, w.IDs["sender"]) {
					w.acts[act] = link
				}
			} else if q := u.Query(); len(q) > 0 {
				key = u.Path + "?"
			}
			if !w.seen[key] {
				w.seen[key] = true
				queue = append(queue, link)
			}
		}
	}
}

// refused: what the role may not do is refused, whoever types its address.
func (w *walker) refused(t *testing.T) {
	t.Helper()
	for _, act := range console.Acts() {
		for _, campaign := range []string{w.campaign, w.other} {
			if w.allowed(act) && (campaign == w.campaign || !strings.Contains(w.role, w.campaign) || act == "stopJob") {
				continue // a job is of a campaign, and one of another campaign is not found
			}
			fields := url.Values{"campaign": {campaign}, "n": {"1"}, "webhook": {w.webhook}, "key": {w.IDs["sender"]}, "id": {w.letter}, "typed": {campaign}, "step": {"do"}, "to": {"x"}}
			if w.allowed(act) && act == "cloneCampaign" {
				fields.Set("to", w.other)
			}
			body, _ := w.get(t, "/acts/"+act+"?"+fields.Encode(), http.StatusForbidden)
			status, _, after := w.post(t, "/acts/"+act, fields)
			if status != http.StatusForbidden {
				t.Errorf("%s posts %s: %d\n%s", w.role, act, status, main(after))
			}
			if w.acts[act] != "" && !w.allowed(act) {
				t.Errorf("%s is offered %s", w.role, act)
			}
			w.check(t, act+" of "+w.other, body+after)
		}
	}
}

// typical are values of fields that a form requires.
func (w *walker) typical(name string) string {
	return map[string]string{"campaign": apitest.Name("w"), "to": apitest.Name("w"), "name": apitest.Name("w"), "batch": apitest.Name("w"), "codes": "10", "role": "support", "count": "1",
		"order_id": apitest.Name("o"), "customer_id": w.customer, "kind": "expires", "before": "5m", "expires_at": "+3h", "url": "https://hooks.example/", "types": "coupon.*", "from": "2026-01-01"}[name]
}

// press posts the form of each act that is offered, what cannot be undone last.
func (w *walker) press(t *testing.T) {
	t.Helper()
	late := []string{"voidCoupons", "dropPreviousTables", "revokeKey", "deleteWebhook", "endCampaign"}
	ids := slices.SortedFunc(maps.Keys(w.acts), func(a, b string) int {
		if x, y := slices.Index(late, a), slices.Index(late, b); x != y {
			return x - y
		}
		return strings.Compare(a, b)
	})
	for _, id := range ids {
		body, _ := w.get(t, w.acts[id], http.StatusOK, http.StatusNotFound, http.StatusConflict)
		for _, s := range sheets(body) {
			for name, now := range s.values {
				switch {
				case name == "typed":
					s.values.Set(name, s.values.Get(map[string]string{"endCampaign": "campaign", "deleteWebhook": "webhook"}[id]))
				case now[0] != "":
				case slices.Contains(s.required, name):
					s.values.Set(name, w.typical(name))
				}
			}
			switch id {
			case "updateCampaign":
				s.values.Set("benefit", `{"text":"`+apitest.Name("b")+`"}`)
			case "updateWebhook":
				s.values.Set("batch", "50")
			case "changeSettings":
				s.values.Set("settings.reminder.batch", "501")
			}
			lines, _, shown := w.post(t, s.action+"/lines", s.values)
			if w.check(t, id, shown); lines == http.StatusForbidden && id == "createCampaign" && !w.allowed("createKey") {
				continue // of the one campaign of the key, which is there
			} else if lines != http.StatusOK || !strings.Contains(shown, `class="cli"`) {
				t.Errorf("%s: the lines of %s: %d\n%s", w.role, id, lines, shown)
			}
			for _, step := range []string{"preview", "do"} {
				if s.values.Set("step", step); step == "preview" && !strings.Contains(body, `value="preview"`) {
					continue
				}
				status, to, after := w.post(t, s.action, s.values)
				w.check(t, id, after)
				switch {
				case status == http.StatusSeeOther:
					body, _ := w.get(t, to, http.StatusOK, http.StatusNotFound)
					w.check(t, to, body)
				case status >= 500 && status != http.StatusServiceUnavailable, status >= 400 && !strings.Contains(after, `role="alert"`):
					t.Errorf("%s posts %s %v: %d\n%s", w.role, id, s.values, status, main(after))
				}
			}
		}
	}
}

// live reads the first part of a stream, "" = it is refused.
func (w *walker) live(t *testing.T, path string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := w.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var part strings.Builder
	for lines := bufio.NewScanner(resp.Body); lines.Scan() && (lines.Text() != "" || resp.StatusCode != http.StatusOK); {
		part.WriteString(lines.Text() + "\n")
	}
	w.check(t, path, part.String())
	if resp.StatusCode == http.StatusForbidden {
		return ""
	}
	if resp.StatusCode != http.StatusOK {
		t.Errorf("%s: GET %s: %d", w.role, path, resp.StatusCode)
	}
	return part.String()
}

// TestWalk: each role opens all pages, links and filters that it is shown, and posts all forms. What it may not do is refused, and
// what it may not see is on no page and in no live part.
func TestWalk(t *testing.T) {
	t.Parallel()
	th := fill(t, serve(t))
	other := th.Campaign(t, map[string]any{"codes": 10_000, "expires_at": time.Now().Add(time.Hour).UTC()})
	codes := []string{th.code, th.Claim(t, other, "bob")}
	if _, err := th.Shop.Remind(t.Context(), other, "bob", "expires", 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	apitest.Until(t, "the tables have the reminder", func() bool {
		return strings.Contains(string(th.Ask(t, "", "GET", "/v1/campaigns/"+other+"/reminders", nil).Body), "pending")
	})
	printed := th.Ask(t, "", "GET", "/v1/campaigns/"+th.campaign+"/allotments/"+th.batch+"/codes", nil).Want(t, 200)
	for _, row := range strings.Fields(string(printed.Body))[1:] {
		codes = append(codes, strings.FieldsFunc(row, func(r rune) bool { return r == ',' })...)
	}
	codes = slices.DeleteFunc(codes, func(s string) bool { return len(s) < 10 })
	for i := range codes {
		codes[i] = strings.ReplaceAll(codes[i], "-", "")
	}
	if len(codes) != 5 {
		t.Fatalf("codes: %q", codes)
	}
	th.Key(t, "sender")
	var all []*walker
	for _, role := range []string{"analyst", "support+" + th.campaign, "support", "support+clear", "operator+" + th.campaign, "operator+clear", "operator"} {
		w := &walker{logIn(t, th.Rig, role), th, role, other, codes, map[string]bool{}, map[string]string{}}
		w.walk(t)
		all = append(all, w)
		t.Logf("%s: %d pages, %d acts", role, len(w.seen), len(w.acts))
	}
	for _, w := range all {
		w.refused(t)
		for path, sees := range map[string]bool{
			"/live/": w.allowed("createKey"), "/live/tables": w.allowed("createKey"), "/live/campaigns/" + th.campaign: w.role != "analyst",
			"/live/campaigns/" + other: w.role != "analyst" && !strings.Contains(w.role, th.campaign), "/live/due": w.role != "analyst" && !strings.Contains(w.role, th.campaign),
			"/live/jobs/" + th.job: w.allowed("createKey"),
		} {
			part := w.live(t, path)
			if got := part != "" && !strings.Contains(part, `role="alert"`); got != sees || !sees && strings.Contains(part, "verif") {
				t.Errorf("%s: %s is shown: %v, want %v\n%s", w.role, path, got, sees, part)
			}
		}
	}
	events := all[6].watch(t, "/follow?campaign="+other)
	apitest.Until(t, "a page that follows has the claim", func() bool {
		th.Claim(t, other, apitest.Name("customer")) // again, until it follows
		return strings.Contains(events(), "coupon.claimed")
	})
	if shown := events(); !strings.Contains(shown, "code masked-") {
		t.Errorf("an event with a code in clear: %s", shown)
	}
	for _, w := range all {
		w.press(t)
	}
	if clear, _ := all[5].get(t, "/coupons/"+th.campaign+"/1", http.StatusOK); !strings.Contains(clear, th.code) {
		t.Error("a key that sees codes sees none")
	}
}
