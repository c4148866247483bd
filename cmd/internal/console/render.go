package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/projections/readmodel"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/scheduler"
)

//go:embed templates assets
var files embed.FS

// templates are the pages by name; each has the layout and the shared parts.
var templates = parseTemplates()

func parseTemplates() map[string]*template.Template {
	all := map[string]*template.Template{}
	shared := template.Must(template.New("").Funcs(funcs).ParseFS(files, "templates/layout.html", "templates/parts.html"))
	names, _ := fs.Glob(files, "templates/*.html") // the pattern is valid
	for _, name := range names {
		all[strings.TrimSuffix(path.Base(name), ".html")] = template.Must(template.Must(shared.Clone()).ParseFS(files, name))
	}
	return all
}

// funcs are those of all templates. Times and numbers have one form on all pages.
var funcs = template.FuncMap{
	"time":    clock,
	"num":     number,
	"ago":     ago,
	"percent": func(part, of any) int { return int(100 * float(part) / max(1, float(of))) },
	"dict":    dict,
	"asset":   assetPath,
	"join":    strings.Join,
	"escape":  url.PathEscape,
	"plain":   plain,
	"masked":  masked,
	"oldest": func(b *scheduler.Backlog) time.Duration {
		return max(b.High.OldestDue, b.Normal.OldestDue, b.Low.OldestDue)
	},
	"isEvent":   func(l readmodel.ShownLetter) bool { return l.IsEvent() },
	"lastOrder": lastOrder,
	"words":     strings.Fields,
	"until":     time.Until,
	"bytes":     size,
	"kinds":     func() []audit.Kind { return audit.Kinds },
}

// Path is a path for a browser; names and values of a query follow it.
func (v *view) Path(p string, query ...any) string {
	values := url.Values{}
	for i := 0; i+1 < len(query); i += 2 {
		if text := fmt.Sprint(query[i+1]); text != "" {
			values.Set(fmt.Sprint(query[i]), text)
		}
	}
	if len(values) > 0 {
		p += "?" + values.Encode()
	}
	return v.c.path(p)
}

// Here is the path of this page, with its query but without what an act added.
func (v *view) Here() string {
	u := *v.r.URL
	q := u.Query()
	q.Del("done")
	u.RawQuery = q.Encode()
	return u.RequestURI()
}

// Next is the path of the next page of a list.
func (v *view) Next(cursor string) string {
	u := *v.r.URL
	q := u.Query()
	if q.Set("after", cursor); cursor == "" {
		q.Del("after")
	}
	q.Del("done")
	u.RawQuery = q.Encode()
	return v.c.path(u.RequestURI())
}

// First is the path of the first page of a list.
func (v *view) First() string { return v.Next("") }

// Sender is that of the path.
func (v *view) Sender() string { return v.r.PathValue("sender") }

// Campaign is that of the path.
func (v *view) Campaign() string { return v.r.PathValue(web.CampaignValue) }

// Query is a parameter of the page.
func (v *view) Query(name string) string { return v.value(name) }

// LivePath is the path of the live part of the page.
func (v *view) LivePath() string { return v.c.path("/live" + v.r.URL.EscapedPath()) }

// masked reports whether it is the mask of a customer, which leads nowhere: no command takes it.
func masked(customer string) bool { return strings.HasPrefix(customer, "masked-") }

// Button is the link to the form of an act, nil = this principal may not do it. Names and values of fields follow the id. A form has
// no mask as a customer: the field stays empty, and an act that needs it has no button.
func (v *view) Button(id string, query ...any) map[string]string {
	a := v.c.acts[id]
	if a == nil {
		panic("there is no act " + id)
	}
	campaign := ""
	for i := 0; i+1 < len(query); i += 2 {
		switch value := fmt.Sprint(query[i+1]); {
		case query[i] == web.CampaignValue:
			campaign = value
		case query[i] == "customer_id" && masked(value):
			if slices.ContainsFunc(v.c.fieldsOf(a), func(f field) bool { return f.Name == "customer_id" && f.Required }) {
				return nil
			}
			query = slices.Concat(query[:i], []any{"customer_id", ""}, query[i+2:])
		}
	}
	if v.Live || !may(v.Who, v.c.routes[a.operation()].Operation, campaign) {
		return nil
	}
	return map[string]string{"Href": v.Path("/acts/"+id, append(query, "back", v.Here())...), "Title": a.title}
}

// May reports whether the principal may do an operation, by the id of its route.
func (v *view) May(id, campaign string) bool {
	route := v.c.routes[id]
	return route != nil && may(v.Who, route.Operation, campaign)
}

// Menu are the pages of the navigation that the principal may see.
func (v *view) Menu() (all []*page) {
	for i := range pages {
		if p := &pages[i]; p.nav && v.Who.Role != access.NoRole && may(v.Who, p.operation, "") {
			all = append(all, p)
		}
	}
	return all
}

// Href, Name and DocTitle are for the navigation.
func (p *page) Href() string  { return strings.TrimSuffix(p.path, "{$}") }
func (p *page) Name() string  { return p.name }
func (p *page) Label() string { return p.title }

// Version is that of the program.
func (v *view) Version() string { return v.c.Version }

// Label and ID are for templates.
func (a *act) Label() string { return a.title }
func (a *act) ID() string    { return a.id }
func (a *act) Typed() string { return a.typed }
func (a *act) Edits() bool   { return a.edits != "" }
func (a *act) Shows() bool   { return a.shows }

// clock is an instant: UTC, which a script turns into the browser's zone where that is chosen.
func clock(at any) template.HTML {
	var t time.Time
	switch at := at.(type) {
	case time.Time:
		t = at
	case *time.Time:
		if at != nil {
			t = *at
		}
	}
	if t.IsZero() {
		return ""
	}
	t = t.UTC()
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s">%s</time>`, // digits alone
		t.Format(time.RFC3339Nano), t.Format("2006-01-02 15:04:05.000 MST"), t.Format("2006-01-02 15:04:05")))
}

// number is a number with spaces between thousands.
func number(n any) string {
	if f, ok := n.(float64); ok && f != float64(int64(f)) {
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	digits := strconv.FormatInt(int64(float(n)), 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "\u202f" + digits[i:]
	}
	return digits
}

// size is a number of bytes.
func size(n uint64) string {
	switch {
	case n < 10<<20:
		return number((n+1023)>>10) + " KiB"
	case n < 10<<30:
		return number(n>>20) + " MiB"
	}
	return number(n>>30) + " GiB"
}

// float is a number of any type, or one that a pointer leads to.
func float(n any) float64 {
	if p, ok := n.(*uint64); ok {
		n = *p
	}
	f, _ := strconv.ParseFloat(fmt.Sprint(n), 64)
	return f
}

// ago is a duration, or how long an instant is ago, in one unit.
func ago(of any) string {
	var d time.Duration
	switch of := of.(type) {
	case time.Duration:
		d = of
	case time.Time:
		d = time.Since(of)
	case *time.Time:
		if of == nil {
			return ""
		}
		d = time.Since(*of)
	}
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%s%.1f s", sign, d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%s%.0f s", sign, d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%s%.0f min", sign, d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%s%.0f h", sign, d.Hours())
	}
	return fmt.Sprintf("%s%.0f days", sign, d.Hours()/24)
}

// dict is a map of names and values, for a template that takes several.
func dict(pairs ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return m
}

// assets are the scripts and styles by name, and the hashes of what they have: a path changes with its file.
var assets = map[string]asset{}

type asset struct {
	body []byte
	hash string
}

func init() {
	for _, dir := range []string{"assets", "assets/vendor"} {
		names, _ := fs.Glob(files, dir+"/*.*")
		for _, name := range names {
			body, _ := files.ReadFile(name)
			sum := sha256.Sum256(body)
			assets[path.Base(name)] = asset{body, hex.EncodeToString(sum[:6])}
		}
	}
}

func assetPath(v *view, name string) string {
	return v.c.path("/assets/" + assets[name].hash + "/" + name)
}

// serveAsset serves a script or a style, to anybody.
func serveAsset(w http.ResponseWriter, r *http.Request) {
	a, ok := assets[r.PathValue("name")]
	if !ok || a.hash != r.PathValue("hash") {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}[path.Ext(r.PathValue("name"))])
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(a.body)
}
