package console_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/seed-4a2410e3/scrip/cmd/internal/browser"
	"github.com/seed-4a2410e3/scrip/cmd/internal/console"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
)

func TestMain(m *testing.M) { os.Exit(apitest.Some(m)) }

// script is a name that does harm where a page does not escape it.
const script = `"><script>document.title='owned'</script>/?#%`

// things are what pages are about, with names that are scripts where names are free.
type things struct {
	*apitest.Rig
	campaign, customer, order, code, webhook, letter, job, batch string
}

// serve starts a server of the test's own, which may call webhooks on this machine.
func serve(t *testing.T, change ...func(*server.Options)) *apitest.Rig {
	return apitest.Serve(t, append(change, func(o *server.Options) {
		o.WebhookAllow, o.WebhookHTTP = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, true
	})...)
}

// fill makes one of everything.
func fill(t *testing.T, r *apitest.Rig) *things {
	t.Helper()
	th := &things{Rig: r, customer: "c" + script, order: "o" + script, batch: "flyer"}
	th.campaign = r.Campaign(t, map[string]any{"codes": 100, "expires_at": time.Now().Add(time.Hour).UTC(), "benefit": map[string]any{"text": script}})
	th.code = r.Claim(t, th.campaign, th.customer)
	r.Redeem(t, th.code, th.order)
	if _, err := r.Shop.Remind(t.Context(), th.campaign, th.customer, "expires", 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Shop.Allot(t.Context(), th.campaign, th.batch, 3); err != nil {
		t.Fatal(err)
	}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	t.Cleanup(receiver.Close)
	th.webhook = r.Ask(t, "", "POST", "/v1/webhooks", map[string]any{"url": receiver.URL, "types": []string{"coupon.*"}}).Want(t, 201).Object(t)["id"].(string)
	th.job = r.Ask(t, "", "POST", "/v1/verifications", map[string]any{}).Want(t, 202).Object(t)["id"].(string)
	if err := r.Shop.Conn().Publish("scrip.cmd."+th.campaign, []byte(`{"type":"claim","customer_id":""}`+"\n")); err != nil {
		t.Fatal(err)
	}
	apitest.Until(t, "the dead letter and the redemption are in the tables", func() bool {
		letters := r.Ask(t, "", "GET", "/v1/dead-letters", nil).Want(t, 200).Object(t)["items"].([]any)
		for _, l := range letters {
			th.letter = l.(map[string]any)["id"].(string)
		}
		coupons := r.Ask(t, "", "GET", "/v1/coupons?order_id="+url.QueryEscape(th.order), nil).Want(t, 200).Object(t)["items"].([]any)
		return th.letter != "" && len(coupons) == 1
	})
	return th
}

// paths are the pages with what they are about.
func (th *things) paths() (all []string) {
	of := strings.NewReplacer("{$}", "", "{campaign}", th.campaign, "{n}", "1", "{customer}", url.PathEscape(th.customer), "{order}", url.PathEscape(th.order),
		"{webhook}", th.webhook, "{id}", th.letter)
	for _, p := range console.Pages() {
		path := p[0]
		if strings.HasPrefix(path, "/jobs/") {
			path = "/jobs/" + th.job
		}
		all = append(all, of.Replace(path))
	}
	return all
}

// session is a browser without script.
type session struct {
	*http.Client
	url string
}

// logIn logs in by the key of a role; "" = by a link of the owner.
func logIn(t *testing.T, r *apitest.Rig, role string) *session {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{&http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, r.URL}
	if role == "" {
		s.get(t, link(t, r), http.StatusSeeOther)
		return s
	}
	if status, _, body := s.post(t, "/login", url.Values{"key": {r.Key(t, role)}, "to": {"/"}}); status != http.StatusSeeOther {
		t.Fatalf("log-in as %s: %d %s", role, status, body)
	}
	return s
}

// link is a link that logs in, once.
func link(t *testing.T, r *apitest.Rig) string {
	t.Helper()
	return r.Ask(t, "", "POST", "/v1/logins", map[string]any{"name": "ann@ops1"}).Want(t, 201).Object(t)["path"].(string)
}

// get returns a page, and where it leads to.
func (s *session) get(t *testing.T, path string, want ...int) (body, to string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	status, to, body := s.do(t, req)
	for _, w := range want {
		if status == w {
			return body, to
		}
	}
	t.Errorf("GET %s: %d, want %v\n%s", path, status, want, main(body))
	return body, to
}

func (s *session) post(t *testing.T, path string, form url.Values) (status int, to, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", s.url)
	return s.do(t, req)
}

func (s *session) do(t *testing.T, req *http.Request) (status int, to, body string) {
	t.Helper()
	resp, err := s.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("%s %s: %v after %q", req.Method, req.URL, err, raw)
	}
	return resp.StatusCode, resp.Header.Get("Location"), string(raw)
}

// main is the part of a page that tests read.
func main(body string) string {
	_, after, _ := strings.Cut(body, "<main")
	before, _, _ := strings.Cut(after, "</main>")
	return before
}

// TestAxe: no screen has what people with disabilities cannot use, in both colour schemes and on a small display. With SCRIP_SHOTS
// it leaves a picture of each in that directory.
func TestAxe(t *testing.T) {
	axe := browser.Axe(t)
	th := fill(t, serve(t))
	ctx := browser.Open(t, "404 (Not Found)")
	do(t, ctx, chromedp.Navigate(th.URL+link(t, th.Rig)))
	paths := append(th.paths(), "/acts/createCampaign", "/acts/updateCampaign?campaign="+th.campaign, "/acts/endCampaign?campaign="+th.campaign, "/acts/createKey", "/nothing", "/login")
	for _, look := range []struct {
		name, scheme string
		width        int64
	}{{"light", "light", 1280}, {"dark-small", "dark", 360}} {
		do(t, ctx, chromedp.EmulateViewport(look.width, 900))
		scheme(t, ctx, look.scheme)
		for _, path := range paths {
			do(t, ctx, chromedp.Navigate(th.URL+path))
			found := eval[string](t, ctx, axe+`; axe.run({resultTypes:["violations"]}).then(r => r.violations.filter(v => ["serious","critical"].includes(v.impact)).map(v => v.id + ": " + v.nodes.map(n => n.html + " " + n.any.map(a => a.message).join()).join(" ")).join("\n"))`)
			if found != "" {
				t.Errorf("%s %s:\n%s", look.name, path, found)
			}
			if wide := eval[int](t, ctx, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); wide > 0 {
				t.Errorf("%s %s is %d pixels too wide", look.name, path, wide)
			}
			if title := eval[string](t, ctx, `document.title`); title == "owned" {
				t.Errorf("%s runs a script that is a name", path)
			}
			if dir := os.Getenv("SCRIP_SHOTS"); dir != "" {
				name, _, _ := strings.Cut(strings.NewReplacer("/", "_", th.campaign, "summer").Replace(path), "%")
				shot(t, ctx, fmt.Sprintf("%s/%s%s.png", dir, look.name, name[:min(40, len(name))]))
			}
		}
	}
}

// scheme chooses a colour scheme.
func scheme(t *testing.T, ctx context.Context, name string) {
	t.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features}); err != nil {
		t.Fatal(err)
	}
}

func do(t *testing.T, ctx context.Context, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(ctx, steps...); err != nil {
		t.Fatal(err)
	}
}

func eval[T any](t *testing.T, ctx context.Context, expression string) T {
	t.Helper()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%.200s: %v", expression, err)
	}
	return v
}

func shot(t *testing.T, ctx context.Context, file string) {
	t.Helper()
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(file, png, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
