package console

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
)

// loginForm is the data of the page of the log-in.
type loginForm struct {
	To      string
	Problem *web.Problem
}

// showLogin shows the form, or logs in by a link that `scrip open` printed.
func (c *Console) showLogin(w http.ResponseWriter, r *http.Request) {
	form := loginForm{To: local(r.URL.Query().Get("to"))}
	if token := r.URL.Query().Get("token"); token != "" && r.Method == http.MethodGet { // previews of links send HEAD
		c.loginByToken(w, r, form, token)
		return
	}
	c.loginPage(w, r, form)
}

// loginByFile logs in by the file that `scrip open` handed to the browser.
func (c *Console) loginByFile(w http.ResponseWriter, r *http.Request) {
	if parse(w, r) {
		c.loginByToken(w, r, loginForm{To: "/"}, r.PostFormValue("token"))
	}
}

func (c *Console) loginByToken(w http.ResponseWriter, r *http.Request, form loginForm, token string) {
	p, problem := c.LogIns.WithToken(r, token)
	if problem != nil {
		form.Problem = problem
		c.loginPage(w, r, form)
		return
	}
	c.LogIns.Start(w, r, p)
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" || r.Header.Get("Origin") == "null" { // a file, or a link in a page such as a web terminal
		w.Header().Set("Refresh", "0; url="+c.path(form.To)) // a redirect would come without the cookie
		return
	}
	http.Redirect(w, r, c.path(form.To), http.StatusSeeOther)
}

// login logs in by a key.
func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	if !parse(w, r) {
		return
	}
	form := loginForm{To: local(r.PostFormValue("to"))}
	p, problem := c.LogIns.WithKey(r, strings.TrimSpace(r.PostFormValue("key")))
	if problem != nil {
		form.Problem = problem
		c.loginPage(w, r, form)
		return
	}
	c.LogIns.Start(w, r, p)
	http.Redirect(w, r, c.path(form.To), http.StatusSeeOther)
}

func (c *Console) logout(w http.ResponseWriter, r *http.Request) {
	c.LogIns.End(w, r)
	http.Redirect(w, r, c.path("/login"), http.StatusSeeOther)
}

func (c *Console) loginPage(w http.ResponseWriter, r *http.Request, form loginForm) {
	v := &view{c: c, w: w, r: r, Title: "Log in", Data: form}
	status := http.StatusOK
	if form.Problem != nil {
		status = form.Problem.Status
	}
	v.render(status, "login", "layout")
}

// maxForm bounds the body of a form, in bytes.
const maxForm = 1 << 20

// parse reads a form, or answers that it is too long.
func parse(w http.ResponseWriter, r *http.Request) bool {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "the form cannot be read, or is longer than 1 MiB", http.StatusBadRequest)
		return false
	}
	return true
}

// local is a path of this console; what leads elsewhere is its first page.
func local(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(u.Path, "//") || strings.ContainsAny(to, "\\\r\n") {
		return "/"
	}
	return to
}

func queryEscape(s string) string { return url.QueryEscape(s) }
