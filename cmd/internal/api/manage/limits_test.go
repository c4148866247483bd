package manage_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api/apitest"
	"github.com/seed-4a2410e3/scrip/cmd/internal/api/manage"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
)

// connect opens a connection to the server, outside of net/http.
func connect(t testing.TB, r *apitest.Rig) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(r.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(apitest.Patience))
	return c
}

// head is the first lines of a request, without the empty line that ends them.
func head(r *apitest.Rig, as, method, path string) string {
	return method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + r.Keys[as] + "\r\n"
}

// TestLimits has the bad cases that one server must survive, one after another.
func TestLimits(t *testing.T) {
	r := apitest.Serve(t)
	r.Key(t, "producer")
	r.Key(t, "producer+public")
	r.Key(t, "operator")
	slow := beginSlowly(t, r)
	t.Run("bodies of a gibibyte", func(t *testing.T) { bodiesOfAGibibyte(t, r) })
	t.Run("broken requests", func(t *testing.T) { brokenRequests(t, r) })
	t.Run("Idempotency-Key", func(t *testing.T) { idempotencyKeys(t, r) })
	t.Run("wrong codes", func(t *testing.T) { wrongCodes(t, r) })
	t.Run("slow clients", slow)
	t.Run("connections", func(t *testing.T) { fiveThousandConnections(t, r) })
	t.Run("rate", func(t *testing.T) { aKeyHasARate(t, r) })
}

// aKeyHasARate: with a rate, a key that sends too many requests is refused until it may send again; another key goes on, and
// without the setting there is no limit.
func aKeyHasARate(t *testing.T, r *apitest.Rig) {
	claim := func(as string) *apitest.Response {
		return r.Ask(t, as, "POST", "/v1/campaigns/none/claims", map[string]any{"customer_id": "ann"})
	}
	if got := claim("producer").Want(t, 404); got.Header.Get("RateLimit") != "" {
		t.Errorf("without a rate: %v", got.Header)
	}
	r.Ask(t, "", "PATCH", "/v1/settings", map[string]any{"http.rate": "1", "http.burst": "20"}).Want(t, 200)
	apitest.Until(t, "the rate is in force", func() bool { return claim("producer").Header.Get("RateLimit-Policy") == `"key";q=20;w=20` })
	var refused *apitest.Response
	apitest.Until(t, "the key has used its rate", func() bool {
		refused = claim("producer")
		return refused.Status != 404
	})
	refused.Problem(t, 429, "rate_limited", "")
	if refused.Header.Get("Retry-After") != "1" || !strings.HasPrefix(refused.Header.Get("RateLimit"), `"key";r=0;t=`) || refused.Object(t)["effect"] != "none" {
		t.Errorf("%v %s", refused.Header, refused.Body)
	}
	claim("producer+public").Want(t, 404)
	claim("").Want(t, 404)
	apitest.Until(t, "the key may send again", func() bool { return claim("producer").Status == 404 })
	r.Ask(t, "", "PATCH", "/v1/settings", map[string]any{"http.rate": "default"}).Want(t, 200)
	apitest.Until(t, "the rate is gone", func() bool { return claim("producer").Header.Get("RateLimit") == "" })
}

// zeros is a body without an end that counts what is taken of it.
type zeros struct{ taken atomic.Int64 }

func (z *zeros) Read(p []byte) (int, error) {
	z.taken.Add(int64(len(p)))
	return len(p), nil
}

// bodiesOfAGibibyte: every route refuses it, announced or not, having taken no more than what lies in buffers on the way.
func bodiesOfAGibibyte(t *testing.T, r *apitest.Rig) {
	c := r.Campaign(t, map[string]any{"codes": 1})
	const length, buffers = 1 << 30, 32 << 20
	for _, route := range manage.New(http.NewServeMux(), manage.Options{}).Routes() {
		if route.Method == http.MethodGet || route.Method == http.MethodDelete {
			continue
		}
		path := places(route.Path, c)
		conn := connect(t, r) // announced: the answer comes before any of it was sent
		if _, err := fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n", head(r, "operator", route.Method, path), length); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%s %s, announced: %v", route.Method, path, err)
			continue
		}
		if resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close {
			t.Errorf("%s %s, announced: %d, the connection ends %v", route.Method, path, resp.StatusCode, resp.Close)
		}
		_ = resp.Body.Close()
		if strings.HasSuffix(route.Path, "/codes") {
			continue // an import takes up to 128 MiB as they come
		}
		body := &zeros{}
		req := r.Request(t, "operator", route.Method, path, io.LimitReader(body, length))
		if strings.HasSuffix(route.Path, "/commands") {
			req.Header.Set("Content-Type", "application/x-ndjson")
		}
		if answer, err := http.DefaultClient.Do(req); err == nil { // else the server ended the connection while the client wrote
			_ = answer.Body.Close()
		}
		if taken := body.taken.Load(); taken > buffers {
			t.Errorf("%s %s, in pieces: %d bytes were taken", route.Method, path, taken)
		}
	}
	r.Ask(t, "operator", "GET", "/v1/campaigns/"+c, nil).Want(t, 200)
}

// brokenRequests: what ends too early, or has no valid form, is refused as such, and the server goes on.
func brokenRequests(t *testing.T, r *apitest.Rig) {
	c := r.Campaign(t, map[string]any{"codes": 1})
	claims := "/v1/campaigns/" + c + "/claims"
	for name, one := range map[string]struct {
		request string
		status  int
	}{
		"long headers": {head(r, "producer", "GET", "/v1/status") + "X: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", http.StatusRequestHeaderFieldsTooLarge},
		"bad chunks":   {head(r, "producer", "POST", claims) + "Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\nzz\r\n{}\r\n", http.StatusBadRequest},
		"two lengths":  {head(r, "producer", "POST", claims) + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", http.StatusBadRequest},
		"no request":   {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", http.StatusBadRequest},
	} {
		conn := connect(t, r)
		go func() { _, _ = io.WriteString(conn, one.request) }() // the answer may come before all of it is taken
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != one.status {
			t.Errorf("%s: %+v, %v; want %d", name, resp, err, one.status)
		}
	}
	r.Ask(t, "producer", "POST", claims, map[string]any{"customer_id": "ann"}).Want(t, 201)
}

// beginSlowly opens hundreds of connections whose clients send their headers or bodies a byte at a time. The function that it
// returns waits until all are cut off. Others are served meanwhile.
func beginSlowly(t *testing.T, r *apitest.Rig) (wait func(*testing.T)) {
	headers := head(r, "producer", "POST", "/v1/campaigns/none/claims")
	bodies := headers + "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
	const clients = 200
	statuses := make(chan int, clients)
	for i := range clients {
		conn := connect(t, r)
		go func() {
			_, _ = io.WriteString(conn, []string{headers, bodies}[i%2])
			go func() { // a byte now and then would keep it alive, if each had a time of its own
				for {
					if _, err := conn.Write([]byte{' '}); err != nil {
						return
					}
					time.Sleep(500 * time.Millisecond)
				}
			}()
			status := 0 // closed without an answer, as net/http does while headers arrive
			if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
				status = resp.StatusCode
			} else if web.Late(err) {
				status = -1
			}
			_ = conn.Close()
			statuses <- status
		}()
	}
	return func(t *testing.T) {
		got := map[int]int{}
		for range clients {
			got[<-statuses]++
		}
		if got[-1] > 0 || got[0]+got[http.StatusRequestTimeout] != clients || got[http.StatusRequestTimeout] == 0 {
			t.Errorf("slow clients got %v", got)
		}
	}
}

// wrongCodes: of thousands of wrong codes at once, a public key has the answer for few, and then for none, also not for a right
// one; another key goes on.
func wrongCodes(t *testing.T, r *apitest.Rig) {
	right := r.Claim(t, r.Campaign(t, map[string]any{"codes": 1}), "ann")
	begun := time.Now()
	var all sync.WaitGroup
	var wrong, refused atomic.Int64
	for worker := range 16 {
		all.Go(func() {
			for i := range 125 {
				switch got := r.Ask(t, "producer+public", "POST", "/v1/validations", map[string]any{"code": fmt.Sprintf("AAAA-AA%02d-A%03d", worker, i)}); got.Status {
				case http.StatusNotFound:
					wrong.Add(1)
				case http.StatusTooManyRequests:
					refused.Add(1)
				}
			}
		})
	}
	all.Wait()
	most := 10 + 1 + int64(5*time.Since(begun).Minutes()) // the burst, and what comes back meanwhile
	if n := wrong.Load(); n < 10 || n > most || n+refused.Load() != 2000 {
		t.Errorf("of 2,000 wrong codes %d had an answer and %d were refused; at most %d may have one", n, refused.Load(), most)
	}
	r.Ask(t, "producer+public", "POST", "/v1/validations", map[string]any{"code": right}).Problem(t, 429, "too_many_wrong_codes", "")
	for i := range 200 {
		r.Ask(t, "producer", "POST", "/v1/validations", map[string]any{"code": fmt.Sprintf("AAAA-BBBB-A%03d", i)}).Problem(t, 404, "code_not_found", "")
	}
	r.Ask(t, "producer", "POST", "/v1/validations", map[string]any{"code": right}).Want(t, 200)
	metrics := string(r.Ask(t, "-", "GET", "/metrics", nil).Want(t, 200).Body)
	for _, want := range []string{
		fmt.Sprintf(`scrip_wrong_codes_total{budget="public"} %d`, wrong.Load()), `scrip_wrong_codes_total{budget="key"} 200`,
		fmt.Sprintf(`scrip_wrong_codes_refused_total{budget="address"} %d`, refused.Load()+1), `scrip_wrong_codes_refused_total{budget="key"} 0`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

// fiveThousandConnections: no more than the limit are open at once; the further ones are closed at once, and there is room
// again when some have ended.
func fiveThousandConnections(t *testing.T, r *apitest.Rig) {
	most := web.Conns()
	total := most + 904
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || uint64(files.Cur) < uint64(2*total+200) {
		t.Skipf("this process may open %d files, both ends of %d connections need more (%v)", files.Cur, total, err)
	}
	http.DefaultClient.CloseIdleConnections()
	begun := time.Now()
	var served, refused atomic.Int64
	all := make(chan net.Conn, total)
	var dialing sync.WaitGroup
	for range 8 {
		dialing.Go(func() {
			for range total / 8 {
				conn, err := net.Dial("tcp", strings.TrimPrefix(r.URL, "http://"))
				if err != nil {
					refused.Add(1)
					continue
				}
				all <- conn
				_ = conn.SetDeadline(time.Now().Add(apitest.Patience))
				_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
				if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil && resp.StatusCode == 200 {
					served.Add(1)
				} else {
					refused.Add(1)
				}
			}
		})
	}
	dialing.Wait()
	took := time.Since(begun)
	if took < web.IdleWait { // else the first ones were idle for too long, and made room
		if n := served.Load(); n > int64(most) || n < int64(most)-64 { // a few may be other tests' clients
			t.Errorf("%d connections were served at once, %d refused; the limit is %d", n, refused.Load(), most)
		}
		if _, err := http.Get(r.URL + "/healthz"); err == nil {
			t.Error("a further connection is served")
		}
	}
	t.Logf("%d connections were served and %d refused within %s", served.Load(), refused.Load(), took)
	close(all)
	for conn := range all {
		_ = conn.Close()
	}
	apitest.Until(t, "others are served again", func() bool {
		resp, err := http.Get(r.URL + "/healthz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == 200
	})
	c := r.Campaign(t, map[string]any{"codes": 1})
	r.Claim(t, c, "ann")
}

// idempotencyKeys: the same Idempotency-Key with another body is refused, from another key it is another one, and many
// requests with it at once are one claim.
func idempotencyKeys(t *testing.T, r *apitest.Rig) {
	c := r.Campaign(t, map[string]any{"codes": 100, "per_customer": 10})
	claim := func(as, customer string) *apitest.Response {
		return r.Ask(t, as, "POST", "/v1/campaigns/"+c+"/claims", map[string]any{"customer_id": customer}, "Idempotency-Key", "cart 1")
	}
	code := claim("producer", "ann").Want(t, 201).Object(t)["code"]
	claim("producer", "bob").Problem(t, 422, "idempotency_key_reused", "")
	if again := claim("producer", "ann").Want(t, 200); again.Object(t)["code"] != code {
		t.Errorf("after the refusal the code %v became %s", code, again.Body)
	}
	for _, customer := range []string{"ann", "bob"} {
		if other := claim("producer+public", customer); customer == "ann" && (other.Status != 201 || other.Object(t)["code"] == code) {
			t.Errorf("another key with the same Idempotency-Key: %d %s", other.Status, other.Body)
		} else if customer == "bob" {
			other.Problem(t, 422, "idempotency_key_reused", "")
		}
	}
	var all sync.WaitGroup
	codes, made := sync.Map{}, atomic.Int64{}
	for range 50 {
		all.Go(func() {
			got := r.Ask(t, "producer", "POST", "/v1/campaigns/"+c+"/claims", map[string]any{"customer_id": "cy"}, "Idempotency-Key", "cart 2")
			var body struct{ Code string }
			if err := json.Unmarshal(got.Body, &body); err != nil || body.Code == "" || got.Status != 200 && got.Status != 201 {
				t.Errorf("%d %s", got.Status, got.Body)
			}
			if codes.Store(body.Code, true); got.Status == 201 {
				made.Add(1)
			}
		})
	}
	all.Wait()
	different := 0
	codes.Range(func(any, any) bool { different++; return true })
	if different != 1 || made.Load() != 1 {
		t.Errorf("50 requests at once with one Idempotency-Key: %d codes, %d times 201", different, made.Load())
	}

	// Without one: the id that the server made repeats the request, for this key alone.
	path, dee := "/v1/campaigns/"+c+"/claims", map[string]any{"customer_id": "dee"}
	first := r.Ask(t, "producer", "POST", path, dee).Want(t, 201)
	id := first.Header.Get("Scrip-Command-Id")
	if id == "" || first.Object(t)["id"] != id {
		t.Fatalf("the id is %q: %s", id, first.Body)
	}
	again := r.Ask(t, "producer", "POST", path, dee, "Idempotency-Key", id).Want(t, 200)
	if again.Object(t)["code"] != first.Object(t)["code"] || again.Header.Get("Idempotency-Replayed") != "true" || again.Header.Get("Scrip-Command-Id") != id {
		t.Errorf("sent again: %v %s, first %s", again.Header, again.Body, first.Body)
	}
	r.Ask(t, "producer", "POST", path, map[string]any{"customer_id": "eve"}, "Idempotency-Key", id).Problem(t, 422, "idempotency_key_reused", "")
	if other := r.Ask(t, "producer+public", "POST", path, dee, "Idempotency-Key", id).Want(t, 201); other.Object(t)["code"] == first.Object(t)["code"] {
		t.Errorf("another key with this id: %s", other.Body)
	}
	if second := r.Ask(t, "producer", "POST", path, dee).Want(t, 201); second.Object(t)["code"] == first.Object(t)["code"] {
		t.Errorf("a second claim without an id: %s", second.Body)
	}
}
