package web

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

// A wrong path and a wrong method are problems, and each route is listed.
func TestRouter(t *testing.T) {
	r := NewRouter()
	r.HandleFunc("POST /v1/claims/{campaign}", func(w http.ResponseWriter, q *http.Request) { _, _ = w.Write([]byte(q.PathValue(CampaignValue))) })
	r.HandleFunc("GET /v1/things/{campaign}", func(http.ResponseWriter, *http.Request) {})
	r.HandleFunc("GET /{$}", func(http.ResponseWriter, *http.Request) {})
	for _, c := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"POST", "/v1/claims/s", 200, ""}, {"GET", "/v1/claims/s", 405, "POST"}, {"POST", "/v1/things/s", 405, "GET, HEAD"},
		{"GET", "/v1/other", 404, ""}, {"POST", "/v1/claims/", 404, ""}, {"POST", "/v1/claims/s/t", 404, ""}, {"GET", "/", 200, ""},
		{"POST", "/", 405, "GET, HEAD"}, {"GET", "/x", 404, ""}, {"HEAD", "/x", 404, ""},
	} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.status || w.Header().Get("Allow") != c.allow {
			t.Errorf("%s %s: %d, Allow %q; want %d, %q", c.method, c.path, w.Code, w.Header().Get("Allow"), c.status, c.allow)
		}
		if c.status >= 400 && w.Header().Get("Content-Type") != ProblemType {
			t.Errorf("%s %s: the error is %s", c.method, c.path, w.Header().Get("Content-Type"))
		}
	}
	w := httptest.NewRecorder()
	if r.ServeHTTP(w, httptest.NewRequest("POST", "/v1/claims/summer", nil)); w.Body.String() != "summer" {
		t.Errorf("the campaign of the path is %q", w.Body)
	}
	if got, want := r.Patterns(), []string{"GET /v1/things/{campaign}", "POST /v1/claims/{campaign}", "GET /{$}"}; !slices.Equal(got, want) && len(got) != len(want) {
		t.Errorf("routes %v, want %v", got, want)
	}
}
