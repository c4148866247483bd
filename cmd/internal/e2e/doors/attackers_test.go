package doors

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"golang.org/x/time/rate"

	"github.com/seed-4a2410e3/scrip/cmd/internal/certs"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// siteVariable has the site, as JSON, in the environment of the attackers' process.
const siteVariable = "SCRIP_DOORS_SITE"

// attacker is a kind of them: how many do it side by side, and the most times a second that they do it together; 0 = as often as the
// server answers.
type attacker struct {
	what   string
	beside int
	rate   float64
	once   func(context.Context, *attack) error
}

// attackers are all.
var attackers = []attacker{
	{"wrong log-ins to NATS", 8, 300, wrongNATS},
	{"wrong keys over HTTP", 4, 300, wrongHTTP},
	{"requests over HTTP/2 that are reset", 4, 300, reset},
	{"silent connections to PostgreSQL", 90, 90, silent},
	{"searches for commands", 4, 0, search},
	{"other reads of the support key", 2, 25, read},
	{"dry runs and exports of the support key", 1, 0.5, heavy},
	{"statements of the analyst", 2, 0, query},
	{"transactions and locks of the analyst", 2, 0, hold},
	{"forbidden statements of the analyst", 1, 20, forbidden},
}

// attack is what attackers share.
type attack struct {
	site
	web    *http.Client
	n      atomic.Int64
	broken atomic.Int64 // answers that say that the server failed, where none may
}

// attackAll attacks until its input ends, and prints how often each attacker did what it does, and how often that failed.
func attackAll(text string) {
	elsewhere()
	a := &attack{}
	if err := json.Unmarshal([]byte(text), &a.site); err != nil {
		panic(err)
	}
	a.web = &http.Client{Transport: &http.Transport{TLSClientConfig: certs.OfFile(a.CA), ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 16}, Timeout: time.Minute}
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	kinds := attackers
	if a.Lists > 0 {
		kinds = []attacker{{"lists by the last four", a.Lists, 0, lastFour}}
	}
	done, failed := make([]atomic.Int64, len(kinds)), make([]atomic.Int64, len(kinds))
	for i, kind := range kinds {
		if !strings.Contains(kind.what, a.Only) {
			continue
		}
		limit := rate.NewLimiter(rate.Inf, 1)
		if kind.rate > 0 {
			limit = rate.NewLimiter(rate.Limit(kind.rate), kind.beside)
		}
		for range kind.beside {
			all.Go(func() {
				for limit.Wait(ctx) == nil {
					err := kind.once(ctx, a)
					if ctx.Err() != nil {
						return
					}
					if done[i].Add(1); err != nil {
						failed[i].Add(1)
						_ = sleep(ctx, failedPause)
					}
				}
			})
		}
	}
	fmt.Println("attacking")
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop()
	all.Wait()
	sum := int64(0)
	for i, kind := range kinds {
		fmt.Printf("%s: %d, failed %d\n", kind.what, done[i].Load(), failed[i].Load())
		sum += done[i].Load()
	}
	fmt.Printf("soak: %d attacks\n", sum)
	if n := a.broken.Load(); n > 0 {
		fmt.Printf("%d answers were 5xx\n", n)
		os.Exit(1)
	}
}

// retryAfter is what Retry-After of a list is.
const retryAfter = time.Second

// failedPause is the pause of an attacker whom the server refuses: many who do not pause would measure their own CPU.
const failedPause = 20 * time.Millisecond

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// wrongNATS logs in with a key that has the form of one.
func wrongNATS(_ context.Context, a *attack) error {
	nc, err := nats.Connect(a.NATS, nats.Token(wrongKey()), nats.Secure(certs.OfFile(a.CA)), nats.NoReconnect(), nats.Timeout(5*time.Second))
	if err == nil {
		nc.Close()
	}
	return nil // a refusal is what is expected
}

func wrongKey() string { return "sk_operator_" + rand.Text()[:8] + "_" + rand.Text() }

// get asks for something with a key, and reads the answer.
func (a *attack) get(ctx context.Context, key, method, path, body string) error {
	_, _, err := a.answer(ctx, key, method, path, body)
	return err
}

func (a *attack) answer(ctx context.Context, key, method, path, body string) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, a.HTTP+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := a.web.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // read
	if answer, err = io.ReadAll(resp.Body); err != nil {
		return 0, nil, err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s %s: %d", method, path, resp.StatusCode)
	}
	return resp.StatusCode, answer, err
}

// lastFour reads a list by the last four symbols of a code to its end. A server that has no room says so, and is left alone for the
// time that it names.
func lastFour(ctx context.Context, a *attack) error {
	n := a.n.Add(1)
	key := a.Keys[n%int64(len(a.Keys))]
	path := fmt.Sprintf("/v1/coupons?campaign=%s&last_four=%04d", a.Campaign, (int64(a.Seed)+n)%10_000)
	for after := ""; ; {
		status, answer, err := a.answer(ctx, key, "GET", path+"&after="+after, "")
		if status >= http.StatusInternalServerError {
			a.broken.Add(1)
		}
		var page struct{ Next string }
		if err == nil {
			err = json.Unmarshal(answer, &page)
		}
		if after = page.Next; status == http.StatusTooManyRequests {
			return errors.Join(err, sleep(ctx, retryAfter))
		}
		if err != nil || after == "" {
			return err
		}
	}
}

func wrongHTTP(ctx context.Context, a *attack) error {
	_ = a.get(ctx, wrongKey(), "GET", "/v1/campaigns", "") // likewise
	return nil
}

// reset gives up a request as soon as it is sent.
func reset(ctx context.Context, a *attack) error {
	ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	_ = a.get(ctx, wrongKey(), "GET", "/v1/campaigns", "")
	return nil
}

// silent opens a connection to PostgreSQL, names a user, and says no more until the server ends it.
func silent(ctx context.Context, a *attack) error {
	u, err := url.Parse(a.Postgres)
	if err != nil {
		return err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	text := "user\x00nobody\x00database\x00" + strings.TrimPrefix(u.Path, "/") + "\x00\x00"
	packet := binary.BigEndian.AppendUint32(nil, uint32(8+len(text)))
	packet = append(binary.BigEndian.AppendUint32(packet, 3<<16), text...)
	if _, err := conn.Write(packet); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, conn)
	return nil
}

// search looks for a command that is not there.
func search(ctx context.Context, a *attack) error {
	return a.get(ctx, a.Support, "GET", "/v1/commands/none", "")
}

// read is the next of the reads of a support key.
func read(ctx context.Context, a *attack) error {
	all := []string{"/v1/campaigns", "/v1/campaigns/$c", "/v1/customers/w1-1?history=1", "/v1/coupons?campaign=$c&limit=1000", "/v1/coupons?campaign=$c&last_four=AAAA",
		"/v1/campaigns/$c/coupons/1?history=1", "/v1/campaigns/$c/statistics", "/v1/campaigns/$c/changes", "/v1/campaigns/$c/reminders", "/v1/due", "/v1/jobs", "/v1/coupons?order_id=none"}
	return a.get(ctx, a.Support, "GET", strings.ReplaceAll(all[a.n.Add(1)%int64(len(all))], "$c", a.Campaign), "")
}

// heavy is a dry run over the whole campaign, or a page of 1,000 of each.
func heavy(ctx context.Context, a *attack) error {
	if a.n.Add(1)%2 == 0 {
		return a.get(ctx, a.Support, "GET", "/v1/customers/w1-1?history=1&limit=1000", "")
	}
	return a.get(ctx, a.Support, "POST", "/v1/campaigns/"+a.Campaign+"/coupons/void", `{"all":true,"dry_run":true}`)
}

// sql runs statements in a session of the analyst.
func (a *attack) sql(ctx context.Context, f func(*pgx.Conn) error) error {
	db, err := pgx.Connect(ctx, a.Postgres)
	if err != nil {
		return err
	}
	defer db.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the attack ends
	return f(db)
}

// query counts, sorts beyond the memory that a session has, and joins.
func query(ctx context.Context, a *attack) error {
	return a.sql(ctx, func(db *pgx.Conn) error {
		var problem error
		for _, statement := range []string{
			"SELECT count(*) FROM generate_series(1, 3000000) a WHERE a % 7 = 3",
			"SELECT count(*) FROM (SELECT md5(a::text) FROM generate_series(1, 300000) a ORDER BY 1) s",
			"SELECT count(*), count(DISTINCT customer_id) FROM scrip.coupon",
			"SELECT count(*) FROM scrip.coupon a JOIN scrip.coupon b USING (campaign, n)",
		} {
			_, err := db.Exec(ctx, statement)
			problem = errors.Join(problem, err)
		}
		return problem
	})
}

// hold stays in a transaction with whatever locks it gets.
func hold(ctx context.Context, a *attack) error {
	return a.sql(ctx, func(db *pgx.Conn) error {
		for _, statement := range []string{"BEGIN", "SELECT count(*) FROM scrip.campaign", "LOCK TABLE scrip.coupon IN ACCESS SHARE MODE"} {
			if _, err := db.Exec(ctx, statement); err != nil {
				return err
			}
		}
		if err := sleep(ctx, 2*time.Second); err != nil {
			return err
		}
		_, err := db.Exec(ctx, "COMMIT")
		return err
	})
}

// forbidden tries what may not be an analyst's to do: a refusal is what is expected.
func forbidden(ctx context.Context, a *attack) error {
	return a.sql(ctx, func(db *pgx.Conn) error {
		_, _ = db.Exec(ctx, "SET default_transaction_read_only = off")
		for _, statement := range []string{
			"SELECT pg_advisory_lock(8314615134239617642)", "SELECT pg_advisory_lock(hashtextextended('scrip analysts', 0))", "SELECT lo_from_bytea(0, decode(repeat('00', 10000), 'hex'))",
			"SET work_mem = '1GB'", "SELECT pg_notify('scrip', repeat('x', 7000))", "SELECT pg_logical_emit_message(false, 'x', repeat('x', 10000))",
		} {
			limited, cancel := context.WithTimeout(ctx, time.Second)
			_, err := db.Exec(limited, statement)
			cancel()
			if err != nil && db.IsClosed() {
				return nil
			}
		}
		return nil
	})
}

// attack starts the attackers, and returns when they have attacked for a moment.
func (r *running) attack(t *testing.T) (stop func()) {
	t.Helper()
	text, err := json.Marshal(r.site)
	streamtest.Must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), siteVariable+"="+string(text))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	streamtest.Must(t, err)
	said := &output{begun: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = said, said
	streamtest.Must(t, cmd.Start())
	stop = sync.OnceFunc(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the attackers ended with %v: %s", err, said.text.String())
		}
		for line := range strings.Lines(said.text.String()) {
			t.Log(strings.TrimSpace(line))
		}
	})
	t.Cleanup(stop)
	<-said.begun
	<-time.After(settles)
	return stop
}

// output is what the attackers print.
type output struct {
	mu    sync.Mutex
	text  strings.Builder
	begun chan struct{} // closed with the first output
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.text.Len() == 0 {
		close(o.begun)
	}
	return o.text.Write(p)
}
