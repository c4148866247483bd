package console

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/streams/access"
)

// perPage is how many rows a page of a list has.
const perPage = "50"

// page is a row of the table of pages. Its template has its name: templates/NAME.html.
type page struct {
	path      string // pattern of http.ServeMux
	name      string
	title     string           // "" = load gives one
	nav       bool             // in the navigation
	operation access.Operation // whose right it needs; the requests to /v1 are checked by themselves
	// live: the template defines "live", the part that is rendered once a second for all viewers of the path with the same role and
	// campaigns. Its data are read as theirs, by no key: it has codes masked, and nothing that is of one viewer.
	live bool
	load func(v *view) (data any)
}

// view is a page for one request.
type view struct {
	c *Console
	w http.ResponseWriter
	r *http.Request

	// Who looks at it.
	Who access.Principal
	// Page is its row; nil = that of an act or a problem.
	Page  *page
	Title string
	// Data is what the template of the page gets, beside this.
	Data any
	// Problem is why there is no page.
	Problem *web.Problem
	// Done is the act that led here.
	Done *act
	// Live: it is the part for all viewers.
	Live bool
}

// view returns the view of a request that has a session. Otherwise it sends the browser to the log-in, and returns nil.
func (c *Console) view(w http.ResponseWriter, r *http.Request) *view {
	p, problem := c.LogIns.Who(r)
	web.Identified(w, problem == nil)
	if problem == nil {
		problem = c.LogIns.Gate.Count(w, p)
	}
	v := &view{c: c, w: w, r: r, Who: p}
	switch {
	case problem == nil:
		v.Done = c.acts[r.URL.Query().Get("done")]
		return v
	case problem.Code != web.Unauthorized:
		v.fail(problem)
	case r.Method == http.MethodGet && !strings.HasPrefix(r.URL.Path, "/live/"):
		http.Redirect(w, r, c.path("/login?to="+queryEscape(local(r.URL.RequestURI()))), http.StatusSeeOther)
	default:
		v.fail(problem)
	}
	return nil
}

// servePage serves a page of the table.
func (c *Console) servePage(w http.ResponseWriter, r *http.Request, p *page) {
	v := c.view(w, r)
	if v == nil {
		return
	}
	v.Page, v.Title = p, p.title
	if problem := v.allowed(); problem != nil {
		if menu := v.Menu(); p.name == "overview" && len(menu) > 0 { // which people come to first
			http.Redirect(w, r, c.path(menu[0].Href()), http.StatusSeeOther)
			return
		}
		v.fail(problem)
		return
	}
	if v.Data = p.load(v); v.Problem != nil {
		v.fail(v.Problem)
		return
	}
	v.render(http.StatusOK, p.name, "layout")
}

// allowed returns the problem of a principal who may not see the page.
func (v *view) allowed() *web.Problem {
	campaign := v.r.PathValue(web.CampaignValue)
	if may(v.Who, v.Page.operation, campaign) {
		return nil
	}
	return web.Check(v.Who, v.Page.operation, campaign)
}

// value is a parameter of the page's query.
func (v *view) value(name string) string { return strings.TrimSpace(v.r.URL.Query().Get(name)) }

// list reads a page of a list: of the query the parameters that are named, and after.
func list[T any](v *view, path string, query ...string) Part[T] {
	return get[T](v, path, append(query, "limit", perPage, "after", v.value("after"))...)
}

// render writes a page. It is rendered whole first: a template that fails shows no half of one.
func (v *view) render(status int, name, part string) {
	var b bytes.Buffer
	if err := templates[name].ExecuteTemplate(&b, part, v); err != nil {
		v.c.Logger.Error("a page cannot be rendered", "page", name, "err", err)
		http.Error(v.w, "the page cannot be rendered; the log of the server has the details", http.StatusInternalServerError)
		return
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.w.WriteHeader(status)
	_, _ = v.w.Write(b.Bytes()) // the browser may be gone
}

// fail shows a problem in place of the page.
func (v *view) fail(p *web.Problem) {
	v.Problem = p
	if v.Title == "" {
		v.Title = p.Title
	}
	v.render(p.Status, "problem", "layout")
}
