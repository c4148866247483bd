package apitest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/client"
)

// Response is an answer, read to its end.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
	What   string
}

// Want fails unless the answer has one of the statuses.
func (r *Response) Want(t testing.TB, statuses ...int) *Response {
	t.Helper()
	for _, s := range statuses {
		if r.Status == s {
			return r
		}
	}
	t.Fatalf("%s: %d, want %v: %s", r.What, r.Status, statuses, r.Body)
	return nil
}

func (r *Response) Into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(r.Body, v); err != nil {
		t.Fatalf("%s: %v: %s", r.What, err, r.Body)
	}
}

// Object is the body as an object.
func (r *Response) Object(t testing.TB) map[string]any {
	t.Helper()
	var v map[string]any
	r.Into(t, &v)
	return v
}

// Problem fails unless the answer is that problem.
func (r *Response) Problem(t testing.TB, status int, code, location string) {
	t.Helper()
	r.Want(t, status)
	var p struct {
		Status int
		Code   string
		Errors []struct{ Location, Message string }
	}
	r.Into(t, &p)
	if p.Status != status || p.Code != code || r.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s: %s, want %d %s", r.What, r.Body, status, code)
	}
	if location != "" && (len(p.Errors) == 0 || p.Errors[0].Location != location || p.Errors[0].Message == "") {
		t.Errorf("%s: %s, want an error at %s", r.What, r.Body, location)
	}
}

// Request makes a request. as is a name of key; "" = the credentials of the data directory, "-" = nothing. body is JSON, or a
// string as it is.
func (r *Rig) Request(t testing.TB, as, method, path string, body any, header ...string) *http.Request {
	t.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	case io.Reader:
		reader = b
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		reader = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, r.URL+path, reader)
	if err != nil {
		t.Fatal(err)
	}
	if reader != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	switch as {
	case "":
		password, _ := r.User.Password()
		req.SetBasicAuth(r.User.Username(), password)
	case "-":
	default:
		req.Header.Set("Authorization", "Bearer "+r.Keys[as])
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

// Ask sends a request, reads the answer, and fails the test where the OpenAPI document does not have it so.
func (r *Rig) Ask(t testing.TB, as, method, path string, body any, header ...string) *Response {
	t.Helper()
	req := r.Request(t, as, method, path, body, header...)
	var sent []byte
	if req.GetBody != nil { // it can be read twice
		copied, err := req.GetBody()
		if err != nil {
			t.Fatal(err)
		}
		if sent, err = io.ReadAll(copied); err != nil {
			t.Fatal(err)
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := &Response{resp.StatusCode, resp.Header, raw, method + " " + path}
	if strings.HasPrefix(path, "/v1") {
		r.Document(t).Check(t, req, sent, got)
	}
	return got
}

// Campaign creates one.
func (r *Rig) Campaign(t testing.TB, settings map[string]any) string {
	t.Helper()
	c := Name("c")
	settings["campaign"] = c
	r.Ask(t, "", "POST", "/v1/campaigns", settings).Want(t, 201)
	return c
}

// Claim claims a coupon and returns its code.
func (r *Rig) Claim(t testing.TB, campaign, customer string) string {
	t.Helper()
	out, err := r.Shop.Claim(t.Context(), campaign, customer)
	if err != nil || out.Refused() {
		t.Fatal(out, err)
	}
	return out.Code
}

// Redeem redeems a code.
func (r *Rig) Redeem(t testing.TB, code, order string, opts ...client.Option) {
	t.Helper()
	out, err := r.Shop.Redeem(t.Context(), code, order, opts...)
	if err != nil || out.Refused() {
		t.Fatal(out, err)
	}
}
