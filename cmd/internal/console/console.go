package console

import (
	"log/slog"
	"net/http"
	"strings"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/streams/access"
)

// Options of a Console. All fields but Prefix and Logger are required.
type Options struct {
	// V1 is the handler of /v1, and API its routes.
	V1  http.Handler
	API *api.API
	// LogIns are the sessions of browsers, and Sessions ends the streams of a revoked key.
	LogIns   *web.LogIns
	Sessions *web.Sessions
	// Prefix is what the paths of all pages start with, "" or such as /coupons.
	Prefix string
	// Version of the program.
	Version string
	// Logger defaults to slog.Default.
	Logger *slog.Logger
}

// Console is the pages.
type Console struct {
	Options
	mux    *http.ServeMux
	guard  http.Handler          // of mux
	routes map[string]*api.Route // by the id of the operation
	acts   map[string]*act
	hub    hub
	claims meter
}

// New returns the handler of all pages but /v1. The prefix is cut off before it.
func New(o Options) *Console {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	c := &Console{Options: o, mux: http.NewServeMux(), routes: map[string]*api.Route{}, acts: map[string]*act{}}
	for _, r := range o.API.Routes() {
		c.routes[r.ID] = &r
	}
	for i := range acts {
		c.acts[acts[i].id] = &acts[i]
		c.fieldsOf(&acts[i])
	}
	for i := range pages {
		p := &pages[i]
		c.mux.HandleFunc("GET "+p.path, func(w http.ResponseWriter, r *http.Request) { c.servePage(w, r, p) })
		if p.live {
			c.mux.HandleFunc("GET /live"+strings.TrimSuffix(p.path, "{$}"), func(w http.ResponseWriter, r *http.Request) { c.serveLive(w, r, p) })
		}
	}
	c.mux.HandleFunc("GET /acts/{act}", c.showAct)
	c.mux.HandleFunc("POST /acts/{act}", c.postAct)
	c.mux.HandleFunc("POST /acts/{act}/lines", c.showLines)
	c.mux.HandleFunc("GET /login", c.showLogin)
	c.mux.HandleFunc("POST /login", c.login)
	c.mux.HandleFunc("POST "+web.LinkPath, c.loginByFile)
	c.mux.HandleFunc("POST /logout", c.logout)
	c.mux.HandleFunc("GET /assets/{hash}/{name}", serveAsset)
	for _, more := range moreRoutes {
		c.mux.HandleFunc(more.pattern, func(w http.ResponseWriter, r *http.Request) { more.serve(c, w, r) })
	}
	c.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		v := c.view(w, r)
		if v == nil {
			return
		}
		v.fail(web.New(web.NotFound, "there is no page "+r.URL.Path))
	})
	c.guard = o.LogIns.Guard(c.mux)
	return c
}

// moreRoutes are those of files that are sent and taken, which are no pages.
var moreRoutes []route

type route struct {
	pattern string
	serve   func(*Console, http.ResponseWriter, *http.Request)
}

// ServeHTTP serves a page.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.guard.ServeHTTP(w, r)
}

// LoggedIn reports whether a request has the cookie of a log-in that has not ended.
func (c *Console) LoggedIn(r *http.Request) bool {
	_, problem := c.LogIns.Who(r)
	return problem == nil
}

// path returns the path of a page for a browser.
func (c *Console) path(p string) string { return c.Prefix + p }

// may reports whether a principal may do an operation to a campaign; "" = it is about none.
func may(p access.Principal, o access.Operation, campaign string) bool {
	if campaign == "" && !o.Whole() {
		return p.CheckRole(o) == nil // which campaign is known later
	}
	return p.May(o, campaign)
}
