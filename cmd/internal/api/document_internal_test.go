package api

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"
)

// The documents need no key, so a request for one costs its bytes only: each is rendered once, and a client that has it gets none.
func TestDocumentsAreRenderedOnce(t *testing.T) {
	mux := http.NewServeMux()
	a := New(mux, Options{Version: "first"})
	get := func(path, known string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		if known != "" {
			r.Header.Set("If-None-Match", known)
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w
	}
	tags := map[string]bool{}
	for _, path := range []string{"/v1", "/v1/openapi.json", "/v1/openapi.yaml", "/v1/openapi-3.0.json"} {
		a.huma.OpenAPI().Info.Version = "first"
		first := get(path, "")
		a.huma.OpenAPI().Info.Version = "second" // a rendering of it would differ
		again, tag := get(path, ""), first.Header().Get("ETag")
		if first.Code != 200 || !bytes.Contains(first.Body.Bytes(), []byte("first")) || !bytes.Equal(first.Body.Bytes(), again.Body.Bytes()) {
			t.Errorf("%s is rendered again: %d, %d bytes, then %d", path, first.Code, first.Body.Len(), again.Body.Len())
		}
		if tags[tag] || len(tag) < 10 {
			t.Errorf("%s has the ETag %q", path, tag)
		}
		tags[tag] = true
		for known, status := range map[string]int{tag: 304, "W/" + tag: 304, `"other", ` + tag: 304, `"other"`: 200} {
			if w := get(path, known); w.Code != status || (w.Body.Len() == 0) != (status == 304) || w.Header().Get("ETag") != tag {
				t.Errorf("%s, If-None-Match %s: %d, %d bytes", path, known, w.Code, w.Body.Len())
			}
		}
	}
}
