package web

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
)

// Router is a ServeMux whose own errors are problems, and that knows its routes. Routes are added before it serves.
type Router struct {
	mux *http.ServeMux // all routes and the one that catches the rest
	own *http.ServeMux // the routes alone: knows whether the path or the method is wrong

	patterns []string
}

// NewRouter returns a Router without routes.
func NewRouter() *Router {
	r := &Router{mux: http.NewServeMux(), own: http.NewServeMux()}
	r.mux.HandleFunc("/", r.unknown)
	return r
}

// Handle adds a route, as ServeMux.Handle does.
func (r *Router) Handle(pattern string, h http.Handler) {
	r.mux.Handle(pattern, h)
	r.own.Handle(pattern, h)
	r.patterns = append(r.patterns, pattern)
}

// HandleFunc adds a route, as ServeMux.HandleFunc does.
func (r *Router) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	r.Handle(pattern, http.HandlerFunc(h))
}

// ServeHTTP serves a request.
func (r *Router) ServeHTTP(w http.ResponseWriter, q *http.Request) { r.mux.ServeHTTP(w, q) }

// Patterns returns the patterns of the routes, by path.
func (r *Router) Patterns() []string {
	all := slices.Clone(r.patterns)
	slices.SortFunc(all, func(a, b string) int { return strings.Compare(path(a)+a, path(b)+b) })
	return all
}

func path(pattern string) string { return pattern[strings.IndexByte(pattern, '/'):] }

// unknown answers requests that no route takes.
func (r *Router) unknown(w http.ResponseWriter, q *http.Request) {
	h, _ := r.own.Handler(q)
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, &http.Request{Method: http.MethodHead, URL: q.URL, Header: http.Header{}})
	switch allow := answer.Header().Get("Allow"); {
	case answer.Code == http.StatusMethodNotAllowed:
		p := New(MethodNotAllowed, "this path takes "+allow)
		p.header("Allow", allow)
		p.Write(w)
	case answer.Code >= 300 && answer.Code < 400: // a path that differs by its slashes
		http.Redirect(w, q, answer.Header().Get("Location"), http.StatusPermanentRedirect)
	default:
		New(NotFound, "there is no such path; GET / lists those that are served").Write(w)
	}
}
