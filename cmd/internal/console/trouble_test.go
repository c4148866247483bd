package console_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/cmd/internal/browser"
	"github.com/seed-4a2410e3/scrip/cmd/internal/console"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// watch follows a live part, and returns its newest event.
func (s *session) watch(t *testing.T, path string) (newest func() string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	var mu sync.Mutex
	var part, last string
	go func() {
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			mu.Lock()
			if part += lines.Text() + "\n"; lines.Text() == "" {
				if strings.HasPrefix(part, "event:") { // not a sign of life, which says nothing about the part
					last = part
				}
				part = ""
			}
			mu.Unlock()
		}
	}()
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return last
	}
}

// TestTwoEditors: of two who change a campaign the second one changes nothing unseen.
func TestTwoEditors(t *testing.T) {
	r := apitest.Shared(t)
	c := r.Campaign(t, map[string]any{"codes": 10})
	var open [2]sheet
	var people [2]*session
	for i := range people {
		people[i] = logIn(t, r, "operator")
		body, _ := people[i].get(t, "/acts/updateCampaign?campaign="+c+"&back=/campaigns/"+c, http.StatusOK)
		open[i] = sheets(body)[0]
		open[i].values.Set("step", "do")
	}
	open[0].values.Set("codes", "20")
	open[1].values.Set("category", "food")
	if status, to, body := people[0].post(t, open[0].action, open[0].values); status != http.StatusSeeOther || to != "/campaigns/"+c+"?done=updateCampaign" {
		t.Fatalf("the first: %d %s\n%s", status, to, main(body))
	}
	status, _, body := people[1].post(t, open[1].action, open[1].values)
	again := "/acts/updateCampaign?back=%2Fcampaigns%2F" + c + "&campaign=" + c
	if status != http.StatusPreconditionFailed || !strings.Contains(body, "It was changed since you opened the form") || !strings.Contains(body, `href="`+strings.ReplaceAll(again, "&", "&amp;")+`"`) {
		t.Fatalf("the second: %d\n%s", status, main(body))
	}
	body, _ = people[1].get(t, again, http.StatusOK)
	second := sheets(body)[0]
	if second.values.Get("codes") != "20" {
		t.Errorf("opened again: %v", second.values)
	}
	second.values.Set("category", "food")
	second.values.Set("step", "do")
	if status, _, body := people[1].post(t, second.action, second.values); status != http.StatusSeeOther {
		t.Errorf("the second, again: %d\n%s", status, main(body))
	}
}

// TestPartsAway: pages stay without PostgreSQL and without the log, name what is away, and go on by themselves.
func TestPartsAway(t *testing.T) {
	t.Parallel()
	ns := streamtest.Start(t)
	var link *streamtest.Link
	r := serve(t, func(o *server.Options) {
		u, err := url.Parse(o.Postgres)
		if err != nil {
			t.Fatal(err)
		}
		link = streamtest.NewLink(t, u.Host)
		u.Host = link.Addr()
		o.Postgres, o.NATS = u.String(), ns.ClientURL()
	})
	c := r.Campaign(t, map[string]any{"codes": 10})
	r.Claim(t, c, "ann")
	s := logIn(t, r, "")
	shows := func(path string, parts ...string) {
		t.Helper()
		apitest.Until(t, fmt.Sprint(path, " shows ", parts), func() bool {
			body, _ := s.get(t, path, http.StatusOK, http.StatusServiceUnavailable, http.StatusGatewayTimeout)
			if strings.Contains(body, `class="empty"`) && strings.Contains(body, `role="alert"`) {
				t.Errorf("%s: a part that is away looks empty\n%s", path, main(body))
			}
			for _, part := range parts {
				if not, is := strings.CutPrefix(part, "!"); strings.Contains(main(body), not) == is {
					return false
				}
			}
			return true
		})
	}
	shows("/coupons/"+c+"/1", "claimed", "message")
	tables, campaign := s.watch(t, "/live/tables"), s.watch(t, "/live/campaigns/"+c)

	link.Cut(true, true)
	link.Break()
	shows("/campaigns/"+c, "Redeemed", `role="alert"`, "read tables")
	shows("/campaigns/"+c+"/coupons", `role="alert"`, "scrip doctor")
	shows("/coupons/"+c+"/1", "claimed", "There is no history now")
	r.Claim(t, c, "bob")
	apitest.Until(t, "the live part has the claim without PostgreSQL", func() bool { return strings.Contains(campaign(), "<dd>2<small>of 10") })
	link.Heal()
	shows("/campaigns/"+c+"/coupons", "!"+`role="alert"`, c+" 2")

	ns.Shutdown()
	shows("/", `role="alert"`, "scrip doctor")
	apitest.Until(t, "live parts show that the log is away", func() bool {
		return strings.Contains(campaign(), `role="alert"`) && strings.Contains(tables(), `role="alert"`)
	})
	ns.Up(t)
	shows("/", "!"+`role="alert"`)
	apitest.Until(t, "live parts go on", func() bool {
		return strings.Contains(campaign(), "<dd>2<small>of 10") && !strings.Contains(tables(), `role="alert"`)
	})
}

// TestRebuildTwice: while one runs another one is refused, on a page that leads to the one that runs. There it can be stopped.
func TestRebuildTwice(t *testing.T) {
	r := apitest.Serve(t)
	s := logIn(t, r, "")
	tx, err := projtest.Pool(t, r.Postgres).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "LOCK TABLE scrip.campaign IN ACCESS SHARE MODE"); err != nil { // with it tables are not exchanged
		t.Fatal(err)
	}
	status, job, body := s.post(t, "/acts/startRebuild", url.Values{"step": {"do"}})
	job, _, _ = strings.Cut(job, "?")
	if status != http.StatusSeeOther || !strings.HasPrefix(job, "/jobs/") {
		t.Fatalf("the first: %d %s\n%s", status, job, main(body))
	}
	status, _, body = s.post(t, "/acts/startRebuild", url.Values{"step": {"do"}})
	if status != http.StatusConflict || !strings.Contains(body, "runs already") || !strings.Contains(body, `href="`+job+`"`) {
		t.Errorf("the second: %d, no link to %s\n%s", status, job, main(body))
	}
	becomes := func(state string) {
		t.Helper()
		apitest.Until(t, "the rebuild is "+state, func() bool {
			body, _ = s.get(t, job, http.StatusOK)
			return strings.Contains(body, ">"+state+"</span>")
		})
	}
	becomes("running")
	if !strings.Contains(body, "/acts/stopJob?") {
		t.Errorf("there is no button to stop it\n%s", main(body))
	}
	if status, to, body := s.post(t, "/acts/stopJob", url.Values{"step": {"do"}, "id": {path.Base(job)}}); status != http.StatusSeeOther || !strings.HasPrefix(to, job+"?") {
		t.Errorf("the stop: %d %s\n%s", status, to, main(body))
	}
	becomes("stopped")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestManyViewers: a live part is rendered once a second for all who watch it, and leaves nothing when they have gone.
func TestManyViewers(t *testing.T) {
	loads := console.CountLoads("campaign")
	const viewers = 200
	r := apitest.Serve(t, func(o *server.Options) { o.HTTPConns, o.HTTPConnsPerAddress = 2*viewers, 2*viewers })
	c := r.Campaign(t, map[string]any{"codes": 1000})
	s := logIn(t, r, "support")
	s.Transport = &http.Transport{}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	s.get(t, "/campaigns/"+c, http.StatusOK)
	goroutines, memory := runtime.NumGoroutine(), heap()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var all sync.WaitGroup
	seen := make(chan int, viewers*4)
	start, before := time.Now(), loads.Load()
	for i := range viewers {
		all.Go(func() {
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/live/campaigns/"+c, nil)
			resp, err := s.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
				if strings.HasPrefix(lines.Text(), "event:") {
					seen <- i
				}
			}
		})
	}
	first := map[int]bool{}
	for len(first) < viewers {
		select {
		case i := <-seen:
			first[i] = true
		case <-time.After(apitest.Patience):
			t.Fatalf("%d of %d viewers have an event", len(first), viewers)
		}
	}
	r.Claim(t, c, "ann") // a change reaches all
	claimed := time.Now()
	for more := map[int]bool{}; len(more) < viewers; {
		more[<-seen] = true
	}
	took := time.Since(claimed)
	if n, most := loads.Load()-before, int64(time.Since(start)/time.Second)+2; n > most || took > 3*time.Second {
		t.Errorf("%d viewers: rendered %d times in %s, want %d; a change took %s", viewers, n, time.Since(start), most, took)
	}
	leave()
	all.Wait()
	s.Transport.(*http.Transport).CloseIdleConnections()
	apitest.Until(t, "goroutines of viewers have ended", func() bool { return runtime.NumGoroutine() <= goroutines+10 })
	apitest.Until(t, "their memory is free", func() bool { return heap() < memory+8<<20 })
}

// TestPagesReadFewRows: no page, list or filter reads more rows of the tables than it shows, however many there are.
func TestPagesReadFewRows(t *testing.T) {
	t.Parallel()
	th := fill(t, serve(t))
	const rows = 20_000
	big := th.Campaign(t, map[string]any{"codes": 2 * rows, "expires_at": time.Now().Add(time.Hour).UTC()})
	for from := 0; from < rows; from += 1000 {
		var claims bytes.Buffer
		for i := range 1000 {
			fmt.Fprintf(&claims, `{"type":"claim","id":"%d","customer_id":"customer-%[1]d"}`+"\n", from+i)
		}
		if err := th.Shop.Conn().Publish("scrip.cmd."+big, claims.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	pool := projtest.Pool(t, th.Postgres)
	apitest.Until(t, "the tables have all coupons", func() bool { return one(t, pool, "SELECT max(n) FROM scrip_tables.coupon_row") >= rows })
	// A segment that got fewer than 10,000, since the rest came after a pause, stays young: it has no indexes, and look-ups read it.
	young := 0
	apitest.Until(t, "their segment is sealed, which reads them", func() bool {
		young = one(t, pool, "SELECT count(*) FROM scrip_1.coupon_claim WHERE segment IN (SELECT segment FROM scrip_1.segment WHERE rows IS NULL)")
		return young < rows/2
	})
	if _, err := pool.Exec(t.Context(), "VACUUM ANALYZE"); err != nil {
		t.Fatal(err)
	}
	read := func() int {
		return one(t, pool, `SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE schemaname ~ '^scrip_[0-9]+$') + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname ~ '^scrip_[0-9]+$')`)
	}
	s := logIn(t, th.Rig, "")
	paths := th.paths()
	// A filter by status or last four reads a bounded part of the campaign, which the page has a note about.
	for _, filter := range []string{"", "?customer_id=none", "?customer_id=none&status=expired"} {
		paths = append(paths, "/campaigns/"+big+"/coupons"+filter)
	}
	paths = append(paths, "/campaigns/"+big, "/campaigns/"+big+"/reminders?state=fired", "/campaigns/"+big+"/codes", "/coupons/"+big+"/777", "/customers/none", "/orders/none")
	// Connections to PostgreSQL count what they read when they are used a second later.
	round := func(paths ...string) int {
		before, n := read(), 0
		for start := time.Now(); n < 2 || time.Since(start) < 1100*time.Millisecond; n++ {
			for _, path := range paths {
				s.get(t, path, http.StatusOK)
			}
		}
		return (read() - before) / n
	}
	round("/tables")
	if round(paths...) < rows/2 {
		return
	}
	// A page shows 100 rows, and reads one more to know whether there is a next page. The projector may read beside it.
	for _, path := range paths {
		if n := round(path); n > 200+young {
			t.Errorf("%s reads %d rows, of which %d may be young", path, n, young)
		}
	}
}

func one(t *testing.T, pool *pgxpool.Pool, query string) (n int) {
	t.Helper()
	if err := pool.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestTimeZone: with the switch to local times, instants are shown and typed in the zone of the browser, in winter those of summer, too.
func TestTimeZone(t *testing.T) {
	t.Parallel()
	r := apitest.Serve(t)
	p := &person{t, browser.Open(t), r.URL}
	if _, err := chromedp.Call(p.ctx, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "America/New_York"}); err != nil {
		t.Fatal(err)
	}
	p.open(link(t, r))
	do(t, p.ctx, chromedp.Click(chromedp.CSS("#zone")))
	for _, c := range []struct{ typed, utc, local string }{
		{"2031-01-02 03:04", "2031-01-02 08:04:00", "2031-01-02 03:04:00"},
		{"2031-07-02 03:04", "2031-07-02 07:04:00", "2031-07-02 03:04:00"},
		{"2031-07-02T03:04:00Z", "2031-07-02 03:04:00", "2031-07-01 23:04:00"},
	} {
		name := apitest.Name("zoned")
		p.open("/acts/createCampaign")
		p.types("campaign", name, "codes", "10", "expires_at", c.typed)
		if echo := eval[string](t, p.ctx, `document.querySelector("[data-echo][for=f-expires_at]").textContent`); !strings.HasPrefix(echo, c.utc+" UTC, "+c.local+" America/New_York, in ") {
			t.Errorf("%s: the echo is %q", c.typed, echo)
		}
		p.click("Create a campaign")
		p.sees("expires")
		if got := r.Ask(t, "", "GET", "/v1/campaigns/"+name, nil).Want(t, 200).Object(t)["expires_at"]; got != strings.Replace(c.utc, " ", "T", 1)+"Z" {
			t.Errorf("%s expires at %s, want %s", c.typed, got, c.utc)
		}
		p.sees(c.local)
	}
	do(t, p.ctx, chromedp.Click(chromedp.CSS("#zone")))
	p.sees("2031-07-02 03:04:00")
}
