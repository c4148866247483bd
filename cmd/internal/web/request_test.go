package web

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A path and a query that mean several things, or none, are refused before any route sees them; what they may hold gets through.
func TestPathsAndQueries(t *testing.T) {
	h := NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).Handler
	for _, c := range []struct {
		target   string
		status   int
		location string
	}{
		{"/v1/customers/x%ff", 400, "path"}, {"/v1/customers/x%C3", 400, "path"}, {"/v1/coupons?customer_id=x%fe", 400, "query.customer_id"},
		{"/v1/coupons?%ff=1", 400, "query.\uFFFD"}, {"/v1/coupons?customer_id=%zz", 400, "query"}, {"/v1/coupons?customer_id=a;order=b", 400, "query"},
		{"//v1/coupons", 404, ""}, {"/v1//coupons", 404, ""}, {"/v1/coupons//", 404, ""}, {"/v1/../metrics", 404, ""}, {"/v1/./coupons", 404, ""},
		{"/", 200, ""}, {"/v1/campaigns/", 200, ""}, {"/v1/customers/a%2F%2Fb", 200, ""}, {"/v1/customers/%2E%2E", 200, ""}, {"/v1/customers/%C3%BC%20%EF%BF%BD", 200, ""},
		{"/v1/coupons?customer_id=%C3%BC+b&order_id=", 200, ""}, {"/v1/coupons?", 200, ""},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://x"+c.target, nil))
		var p Problem
		if c.status != 200 {
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
				t.Errorf("%s: %v: %s", c.target, err, w.Body)
			}
		}
		location := ""
		if len(p.Errors) > 0 {
			location = p.Errors[0].Location
		}
		if w.Code != c.status || location != c.location {
			t.Errorf("%s: %d at %q, want %d at %q", c.target, w.Code, location, c.status, c.location)
		}
	}
}

// written is a connection that keeps what is written.
type written struct {
	net.Conn
	strings.Builder
}

func (w *written) Write(b []byte) (int, error) { return w.Builder.Write(b) }

// What a handler writes is not taken for an answer of package http.
func TestOwnErrors(t *testing.T) {
	const head = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
	for text, want := range map[string]string{
		"HTTP/1.1 400 Bad Request" + head + "400 Bad Request":         `"status":400`,
		"HTTP/1.1 431 Request Header Fields Too Large" + head + "431": `"status":431`,
		"HTTP/1.1 200 OK" + head + "text":                             "",
		"HTTP/1.1 404 Not Found\r\nDate: x" + head + "text":           "",
		"HTTP/1.1 4": "", "HTTP/1.1 400 Bad Request": "", "": "",
		"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nX: y\r\n\r\ntext": "",
	} {
		var to written
		if n, err := (&conn{Conn: &to}).Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("%q: %d, %v", text, n, err)
		}
		if got := to.String(); (want == "") != (got == text) || !strings.Contains(got, want) {
			t.Errorf("%q becomes %q", text, got)
		}
	}
}

// TestRequestIDs: every answer has one, that of the client if it sent a good one.
func TestRequestIDs(t *testing.T) {
	h := NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/none" {
			New(NotFound, "").Write(w)
		}
	})).Handler
	for _, c := range []struct {
		path   string
		given  []string
		status int
	}{
		{"/metrics", nil, 200}, {"/metrics", []string{"a b~"}, 200}, {"/v1/none", nil, 404}, {"/v1/none", []string{"abc"}, 404},
		{"/", []string{""}, 400}, {"/", []string{"a", "a"}, 400}, {"/", []string{"ü"}, 400}, {"/", []string{strings.Repeat("x", 65)}, 400},
	} {
		w, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "http://x"+c.path, nil)
		req.Header[RequestID] = c.given
		if c.given == nil {
			delete(req.Header, RequestID)
		}
		h.ServeHTTP(w, req)
		got, good := w.Header()[RequestID], c.given != nil && c.status != 400
		if w.Code != c.status || len(got) != 1 || got[0] == "" || good != (c.given != nil && got[0] == c.given[0]) ||
			c.status != 200 && !strings.Contains(w.Body.String(), `"request_id":"`+got[0]+`"`) {
			t.Errorf("%s %q: %d, %q, %s", c.path, c.given, w.Code, got, w.Body)
		}
	}
}
