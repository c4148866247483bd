package api_test

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
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// connect opens a connection to the server, outside of net/http.
func connect(t testing.TB, r *apitest.Rig) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(r.URL, "http://"))
	streamtest.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(apitest.Patience))
	return c
}

// head is the first lines of a request, without the empty line that ends them.
func head(r *apitest.Rig, as, method, path string) string {
	return method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + r.Keys[as] + "\r\n"
}

// zeros is a body without an end that counts what is taken of it.
type zeros struct{ taken atomic.Int64 }

func (z *zeros) Read(p []byte) (int, error) {
	z.taken.Add(int64(len(p)))
	return len(p), nil
}

// TestBodiesOfAGibibyte: every route refuses it, announced or not, having taken no more than what lies in buffers on the way.
func TestBodiesOfAGibibyte(t *testing.T) {
	r := apitest.Shared(t)
	r.Key(t, "operator")
	c := r.Campaign(t, map[string]any{"codes": 1})
	const length, buffers = 1 << 30, 32 << 20
	for _, route := range api.New(http.NewServeMux(), api.Options{}).Routes() {
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

// TestIdempotencyKeys: the same Idempotency-Key with another body is refused, from another key it is another one, and many
// requests with it at once are one claim.
func TestIdempotencyKeys(t *testing.T) {
	r := apitest.Shared(t)
	r.Key(t, "producer")
	r.Key(t, "producer+public")
	c := r.Campaign(t, map[string]any{"codes": 100, "per_customer": 10})
	claim := func(as, customer string) *apitest.Response {
		return r.Ask(t, as, "POST", "/v1/campaigns/"+c+"/claims", map[string]any{"customer_id": customer}, "Idempotency-Key", "cart 1")
	}
	code := claim("producer", "ann").Want(t, 201).Object(t)["code"]
	if other := claim("producer+public", "ann").Want(t, 201); other.Object(t)["code"] == code {
		t.Errorf("another key with the same Idempotency-Key: %s", other.Body)
	}
	for _, as := range []string{"producer", "producer+public"} {
		claim(as, "bob").Problem(t, 422, "idempotency_key_reused", "")
	}
	if again := claim("producer", "ann").Want(t, 200); again.Object(t)["code"] != code {
		t.Errorf("after the refusal the code %v became %s", code, again.Body)
	}
	// Nor is it that of another kind of command.
	r.Ask(t, "producer", "POST", "/v1/redemptions", map[string]any{"code": code, "order_id": "o"}, "Idempotency-Key", "cart 1").Problem(t, 422, "idempotency_key_reused", "")
	var all sync.WaitGroup
	codes, made := make(chan string, 50), atomic.Int64{}
	for range cap(codes) {
		all.Go(func() {
			got := r.Ask(t, "producer", "POST", "/v1/campaigns/"+c+"/claims", map[string]any{"customer_id": "cy"}, "Idempotency-Key", "cart 2")
			var body struct{ Code string }
			if err := json.Unmarshal(got.Body, &body); err != nil || body.Code == "" || got.Status != 200 && got.Status != 201 {
				t.Errorf("%d %s", got.Status, got.Body)
			}
			if codes <- body.Code; got.Status == 201 {
				made.Add(1)
			}
		})
	}
	all.Wait()
	close(codes)
	one := <-codes
	for code := range codes {
		if code != one {
			t.Errorf("50 requests at once with one Idempotency-Key: %s and %s", one, code)
		}
	}
	if n := made.Load(); n != 1 {
		t.Errorf("50 requests at once with one Idempotency-Key: %d times 201", n)
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
