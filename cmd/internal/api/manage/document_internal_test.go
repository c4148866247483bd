package manage

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/streams/access"
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

// A key that holds all it may of something leaves the rest to others, and what is refused is counted.
func TestSlots(t *testing.T) {
	s := newSlots().exports
	take := func(id string) (func(), int) {
		w := httptest.NewRecorder()
		release := s.take(w, access.Principal{ID: id})
		return release, w.Code
	}
	var ends []func()
	for range 2 {
		end, _ := take("slow")
		ends = append(ends, end)
	}
	if end, status := take("slow"); end != nil || status != web.KindOf(web.Overloaded).Status {
		t.Errorf("one more of the same key: %d", status)
	}
	for _, id := range []string{"other", ""} {
		if end, _ := take(id); end == nil {
			t.Errorf("%q has no slot", id)
		}
	}
	if end, _ := take("third"); end != nil {
		t.Error("there are more than the server has")
	}
	ends[0]()
	if end, _ := take("slow"); end == nil {
		t.Error("a slot that was released is not free")
	}
	if l := s.Limits(); l[0].Used != 4 || l[0].Refused != 1 || l[1].Used != 2 || l[1].Refused != 1 {
		t.Errorf("%+v", l)
	}
}
