package api_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

var readsMessages = flag.Int("reads.messages", 2000, "how many messages the log has in TestReadsAreBounded")

const (
	// readCPU bounds what a read costs the server and PostgreSQL.
	readCPU = 60 * time.Millisecond
	// readTries is how often a read is measured that costs more: what else the server does meanwhile is added, so the least counts.
	readTries = 4
	// readLanes is how many lanes are filled side by side, and readMany how many coupons of each one customer has.
	readLanes, readMany = 8, 125
)

// reads are what each route that reads is measured with, beside the path alone: queries, or bodies of a POST.
var reads = map[string][]string{
	"listCampaigns":         {"?limit=1000"},
	"searchCoupons":         {`{"customer_id":"ann","limit":1000}`, `{"code":"AAAA-AAAA-AAAA"}`},
	"validate":              {`{"code":"AAAA-AAAA-AAAA"}`},
	"getCustomer":           {"?limit=1", "?limit=1000"},
	"listAllotments":        {"?limit=1000"},
	"listSettingChanges":    {"?limit=1000"},
	"readAudit":             {"?actor=none", "?about=none", "?limit=1000", "?until=2020-01-01T00:00:00Z"},
	"listReminders":         {"?limit=1000", "?state=fired", "?customer_id=none"},
	"getCommand":            {"?campaign=$campaign"},
	"listDeadLetters":       {"?limit=1000", "?cause=none&state=all", "?lane=3"},
	"groupDeadLetters":      {"?limit=1000"},
	"listKeys":              {"?limit=1000"},
	"listWebhooks":          {"?limit=1000"},
	"listSenderDeadLetters": {"?limit=1000"},
	"listSenders":           {"?limit=1000"},
	"listCoupons": {"?campaign=$campaign&limit=1000", "?campaign=$campaign&status=voided", "?campaign=$campaign&last_four=AAAA",
		"?customer_id=ann&limit=1000", "?customer_id=ann&status=voided", "?order_id=none"},
	"diffCampaigns":       {"?with=$campaign"},
	"listCampaignChanges": {"?limit=1000"},
	"listDays":            {"?limit=1000", "?attribute=none"},
	"readEvents":          {"?after=now", "?types=coupon.voided", "?campaign=none"},
}

// readsMore are the routes that may cost more: so much, and so much for each message of the log.
var readsMore = map[string]struct {
	cpu, each time.Duration
	why       string
}{
	"getCommand":  {400 * time.Millisecond, 0, "it searches for 200 ms, one request at a time, and rests"},
	"listCoupons": {1500 * time.Millisecond, 0, "without an index it reads for a second, two requests at a time, and rests"},
	"getCustomer": {200 * time.Millisecond, 0, "a page of 1,000 entries has as many messages of the log"},
	"readEvents":  {0, 40 * time.Microsecond, "it has the whole log; a key has 8 streams"},
	"exportCodes": {0, 40 * time.Microsecond, "it has the whole campaign; a key has 2 exports"},
}

// TestReadsAreBounded: no read of the HTTP API costs more CPU, of the server and of PostgreSQL, the longer the log is. The log has
// many messages in each of its streams.
func TestReadsAreBounded(t *testing.T) {
	if underRace {
		t.Skip("the race detector multiplies the CPU of a read; other tests read under it")
	}
	r := apitest.Serve(t, func(o *server.Options) { o.Sync, o.Lanes = "interval", readLanes })
	campaign := fillLog(t, r)
	fill := strings.NewReplacer("{n}", "1", "{sender}", "app", "{order_id}", "none", "{kind}", "expires", "{before}", "1h", "{batch}", "none")
	m, measured := newMeter(t, r), map[string]bool{}
	for _, route := range api.New(http.NewServeMux(), api.Options{}).Routes() {
		if route.Unsafe() {
			continue
		}
		most := readCPU
		if more, ok := readsMore[route.ID]; ok {
			most = max(most, more.cpu+more.each*time.Duration(*readsMessages))
		}
		for n, with := range append([]string{""}, reads[route.ID]...) {
			path, body, with := fill.Replace(places(route.Path, campaign)), "", strings.ReplaceAll(with, "$campaign", campaign)
			if route.Method == http.MethodGet {
				path += with
			} else {
				body = with
			}
			cpu, status := m.least(most, func() *http.Request { return r.Request(t, "", route.Method, path, body) })
			if cpu > most || status >= 500 || n > 0 && status != http.StatusOK && status != http.StatusNotFound {
				t.Errorf("%s %s %s: %d, costs %s of CPU, at most %s are allowed", route.ID, path, body, status, cpu, most)
			}
			t.Logf("%-22s %-48s %d %s", route.ID, with, status, cpu.Round(100*time.Microsecond))
		}
		measured[route.ID] = true
	}
	for _, id := range slices.Concat(slices.Collect(maps.Keys(reads)), slices.Collect(maps.Keys(readsMore))) {
		if !measured[id] {
			t.Errorf("no route that reads is named %s", id)
		}
	}
}

// fillLog makes a log with many messages.
func fillLog(t *testing.T, r *apitest.Rig) (campaign string) {
	t.Helper()
	names := e2e.Campaigns(readLanes)
	for _, c := range names {
		r.Ask(t, "", "POST", "/v1/campaigns", map[string]any{"campaign": c, "codes": 1_000_000, "per_customer": 1_000_000}).Want(t, 201)
	}
	var all sync.WaitGroup
	for lane, c := range names {
		all.Go(func() { // one after the other: a message each
			for n := range *readsMessages / readLanes {
				customer := "ann"
				if n >= readMany {
					customer = fmt.Sprint("customer ", lane, " ", n)
				}
				if out, err := r.Shop.Claim(t.Context(), c, customer, client.ID(fmt.Sprint("claim ", n))); err != nil || out.Refused() {
					t.Error(out, err)
					return
				}
			}
		})
	}
	js, err := jetstream.New(r.Shop.Conn(), jetstream.WithPublishAsyncMaxPending(1<<20))
	streamtest.Must(t, err)
	_, err = js.CreateStream(t.Context(), topology.PushDeadConfig(1))
	streamtest.Must(t, err)
	for n := range max(20_000, *readsMessages) {
		_, err := js.PublishAsync(topology.AuditSubject, fmt.Appendf(nil, `{"at":"2026-11-26T00:00:00Z","kind":"lookup","actor":"ann","action":"coupons","about":"x %d"}`, n))
		streamtest.Must(t, err)
		if n%16 == 0 {
			m := nats.NewMsg(fmt.Sprint(topology.PushDeadSubjects, "app.0.", n+1, ".0.0"))
			m.Header = nats.Header{"Scrip-Push-Stream": {"SCRIP_RMD_0"}, "Scrip-Push-Sequence": {"1"},
				"Scrip-Push-Tries": {"3"}, "Scrip-Push-Error": {"no answer"}}
			m.Data = []byte("{}\n")
			_, err := js.PublishMsgAsync(m)
			streamtest.Must(t, err)
		}
	}
	<-js.PublishAsyncComplete()
	all.Wait()
	bad := strings.Repeat(`{"id":"bad","type":"claim","customer":"ann"}`+"\n", 1000)
	for range 2 {
		streamtest.Must(t, r.Shop.Conn().Publish("scrip.cmd."+names[0], []byte(bad)))
	}
	apitest.Until(t, "the tables have it", func() bool {
		return strings.Contains(string(r.Ask(t, "", "GET", "/v1/campaigns/"+names[0]+"/changes", nil).Body), "items")
	})
	return names[0]
}

// meter measures what the server and PostgreSQL use.
type meter struct {
	*testing.T
	db *pgx.Conn
}

func newMeter(t *testing.T, r *apitest.Rig) *meter {
	t.Helper()
	db, err := pgx.Connect(t.Context(), r.Postgres)
	streamtest.Must(t, err)
	t.Cleanup(func() { _ = db.Close(context.Background()) })
	return &meter{t, db}
}

// least is what a request costs, measured again while that is more than allowed.
func (m *meter) least(allowed time.Duration, request func() *http.Request) (least time.Duration, status int) {
	m.Helper()
	for n := 0; n == 0 || n < readTries && least > allowed; n++ {
		before := m.cpu()
		resp, err := http.DefaultClient.Do(request())
		streamtest.Must(m, err)
		_, err = io.Copy(io.Discard, resp.Body)
		streamtest.Must(m, err)
		_ = resp.Body.Close()
		used := m.cpu() - before
		if status = resp.StatusCode; n == 0 || used < least {
			least = used
		}
	}
	return least, status
}

// cpu is the time on CPUs of this process and of the processes of PostgreSQL.
func (m *meter) cpu() (sum time.Duration) {
	var self syscall.Rusage
	streamtest.Must(m, syscall.Getrusage(syscall.RUSAGE_SELF, &self))
	sum = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	rows, err := m.db.Query(m.Context(), "SELECT pid FROM pg_stat_activity WHERE backend_type IN ('client backend', 'parallel worker') AND pid <> pg_backend_pid()")
	streamtest.Must(m, err)
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
	streamtest.Must(m, err)
	for _, pid := range pids {
		raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "schedstat"))
		if err != nil {
			continue // it has ended
		}
		ran, err := strconv.ParseInt(strings.Fields(string(raw))[0], 10, 64)
		streamtest.Must(m, err)
		sum += time.Duration(ran)
	}
	return sum
}
