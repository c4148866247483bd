// Package fuzz drives the HTTP API from its own OpenAPI document.
//
//	bytes ──> operation · path, query, headers · body by the schema, with mutations ──> server ──> status and body by the document
package fuzz

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
)

func TestMain(m *testing.M) { os.Exit(apitest.Some(m)) }

// operation is one of the document.
type operation struct {
	method, path string
	spec         map[string]any
}

// world is a server with something of everything, and its document.
type world struct {
	*apitest.Rig
	root  map[string]any
	ops   []operation
	known map[string][]string // values that exist, by the name of a field or parameter
}

// callers are the keys that requests are sent with; the credentials of the data directory as often as all others.
var callers = []string{"", "operator", "", "support", "", "producer", "", "analyst", "", "-"}

func newWorld(f *testing.F) *world {
	f.Helper()
	w := &world{Rig: apitest.Shared(f), known: map[string][]string{}}
	resp, err := http.Get(w.URL + "/v1/openapi.json")
	if err != nil {
		f.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	if err := json.NewDecoder(resp.Body).Decode(&w.root); err != nil {
		f.Fatal(err)
	}
	for path, methods := range w.root["paths"].(map[string]any) {
		for method, spec := range methods.(map[string]any) {
			w.ops = append(w.ops, operation{strings.ToUpper(method), path, spec.(map[string]any)})
		}
	}
	slices.SortFunc(w.ops, func(a, b operation) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	for _, role := range callers {
		if role != "" && role != "-" {
			w.Key(f, role)
		}
	}
	c := w.Campaign(f, map[string]any{"codes": 1_000_000, "per_customer": 1000, "expires_at": "2998-01-01T00:00:00Z"})
	code := w.Claim(f, c, "ann")
	w.Redeem(f, w.Claim(f, c, "bob"), "order-1")
	w.known = map[string][]string{
		"campaign": {c}, "code": {code}, "customer_id": {"ann", "bob"}, "order_id": {"order-1", "order-2"},
		"key": {w.IDs["analyst"]}, "kind": {"expires"}, "before": {"24h"}, "type": {"claim"}, "role": {"support"}, "If-Match": {"*"},
		"url": {"http://127.0.0.1:9/"}, "types": {"coupon.*", "coupon.claimed"}, "after": {"start", "now"}, "setting": {"reminder.batch"},
		"reminder.batch": {"200"}, "overlap": {"1h"}, "webhook": {"none"},
	}
	return w
}

// FuzzV1: whatever the request, the status is documented, the body is valid by its schema, and nothing fails inside: no status
// is over 499, but for a 503 that is over when the request is sent again.
func FuzzV1(f *testing.F) {
	w := newWorld(f)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same seeds each time
	for i := range w.ops {
		for _, size := range []int{0, 120} { // plain, then with mutations
			seed := []byte{byte(i)}
			for range size {
				seed = append(seed, byte(random.Uint32()))
			}
			f.Add(seed)
		}
	}
	client := &http.Client{Timeout: 30 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &script{world: w, data: data}
		op := w.ops[int(s.next())%len(w.ops)]
		req, sent := s.request(t, op)
		got := answer(t, client, req)
		for try := 0; got.Status == http.StatusServiceUnavailable && try < 3; try++ { // "retry": so it does
			time.Sleep(time.Second)
			if req.Body != nil {
				req.Body = io.NopCloser(bytes.NewReader(sent))
			}
			got = answer(t, client, req)
		}
		got.What = fmt.Sprintf("%s %s\n%v\n%q", op.method, req.URL.RequestURI(), req.Header, cut(sent))
		if got.Status > 499 {
			t.Errorf("%s: %d %s", got.What, got.Status, cut(got.Body))
		}
		w.Document(t).Check(t, req, withoutNulls(sent), got)
	})
}

// withoutNulls drops the fields of a body that are null: the server takes them as absent, which the document does not list.
func withoutNulls(body []byte) []byte {
	var v any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return body
	}
	var drop func(any)
	drop = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			maps.DeleteFunc(v, func(_ string, v any) bool { return v == nil })
			for _, v := range v {
				drop(v)
			}
		case []any:
			for _, v := range v {
				drop(v)
			}
		}
	}
	drop(v)
	plain, err := json.Marshal(v)
	if err != nil {
		return body
	}
	return plain
}

func cut(b []byte) []byte { return b[:min(len(b), 4000)] }

// answer sends a request and reads the answer.
func answer(t *testing.T, client *http.Client, req *http.Request) *apitest.Response {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("%s: %v", req.URL, err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", req.URL, err)
	}
	return &apitest.Response{Status: resp.StatusCode, Header: resp.Header, Body: body}
}

// request builds a request that net/http sends.
func (s *script) request(t *testing.T, op operation) (*http.Request, []byte) {
	as := callers[int(s.next())%len(callers)]
	path, query, header := op.path, []string{}, http.Header{}
	parameters, _ := op.spec["parameters"].([]any)
	for _, p := range parameters {
		p := s.resolve(p.(map[string]any))
		name, in := p["name"].(string), p["in"].(string)
		required, _ := p["required"].(bool)
		if in != "path" && !required && s.next()%3 != 1 || required && in != "path" && s.odd(16) {
			continue
		}
		text := s.text(name, p["schema"])
		switch in {
		case "path":
			if text == "" || text == "." || text == ".." {
				text = "x"
			}
			path = strings.Replace(path, "{"+name+"}", escape(text), 1)
		case "query":
			if name == "follow" { // it would not end
				text = "0"
			}
			query = append(query, name+"="+escape(text))
		case "header":
			header.Add(name, text)
			if s.odd(32) {
				header.Add(name, text)
			}
		}
	}
	if s.odd(32) {
		query = append(query, "unknown="+escape(s.text("", nil)))
	}
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	var sent []byte
	if body, has := op.spec["requestBody"].(map[string]any); has {
		content := body["content"].(map[string]any)
		types := slices.Sorted(maps.Keys(content))
		media := types[int(s.next())%len(types)]
		sent = s.body(media, content[media].(map[string]any)["schema"])
		header.Set("Content-Type", media)
		if s.odd(24) {
			header.Set("Content-Type", []string{"", "text/plain", "application/json; charset=latin1", "APPLICATION/JSON", "a/b/c"}[int(s.next())%5])
		}
	} else if s.odd(24) {
		sent = []byte("{}")
	}
	for name, values := range header {
		for _, v := range values {
			if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				delete(header, name)
			}
		}
	}
	var reader any
	if sent != nil {
		reader = string(sent)
	}
	req := s.Request(t, as, op.method, path, reader)
	for name, values := range header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	return req, sent
}

// escape writes each byte that is not a letter or a digit as %XX.
func escape(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
