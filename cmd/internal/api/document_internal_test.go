package api

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"
)

// The document needs no key, so a request costs its bytes only: it is rendered once, and a client that has it gets none.
func TestTheDocumentIsRenderedOnce(t *testing.T) {
	mux := http.NewServeMux()
	a := New(mux, Options{})
	get := func(path, known string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		if known != "" {
			r.Header.Set("If-None-Match", known)
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w
	}
	const path = "/v1/openapi.json"
	first := get(path, "")
	a.document.Info.Title = "second" // a rendering of it would differ
	again, tag := get(path, ""), first.Header().Get("ETag")
	if first.Code != 200 || !bytes.Contains(first.Body.Bytes(), []byte(`"scrip"`)) || !bytes.Equal(first.Body.Bytes(), again.Body.Bytes()) {
		t.Errorf("it is rendered again: %d, %d bytes, then %d", first.Code, first.Body.Len(), again.Body.Len())
	}
	if len(tag) < 10 {
		t.Errorf("its ETag is %q", tag)
	}
	for known, status := range map[string]int{tag: 304, "W/" + tag: 304, `"other", ` + tag: 304, `"other"`: 200} {
		if w := get(path, known); w.Code != status || (w.Body.Len() == 0) != (status == 304) || w.Header().Get("ETag") != tag {
			t.Errorf("If-None-Match %s: %d, %d bytes", known, w.Code, w.Body.Len())
		}
	}
}
