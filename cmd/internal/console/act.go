package console

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// act is a row of the table of what people do. Its route, its roles and its form follow from the operation of /v1.
//
//	GET  /acts/void?campaign=summer&n=7&back=/coupons/summer/7 ──> the form, filled from the query
//	POST /acts/void ──> POST /v1/coupons/void ──> back, to the job that it started, or the form with what is wrong
type act struct {
	id    string // of the operation in the document of /v1, or a name of its own for one of another operation:
	of    string
	title string // of its button
	about string // for people; "" = what the document has
	// fields of the request that the form has, in order, besides those in the path: a dot leads into an object, as in
	// filter.status. What is in the query of the form but not here is not sent.
	fields []string
	// body is that of an act which has no choice but of its fields: {name} in it is a text.
	body string
	// edits is the path of what it changes: the form has its values, a preview shows the differences, and only those are sent.
	// {name} is a field of the path.
	edits string
	// typed is the field of the path that must be typed, for what cannot be undone.
	typed string
	// then is the page after it, "" = where it was started. {name} is a field.
	then string
	// answers: its answer is shown. shows: it has what cannot be read again, too.
	answers, shows bool
	// cleared is what a flag has for a field that is emptied.
	cleared string
	// cli is the line of the command line: {name} is the value of a field, and [what is in brackets] is left out without one.
	cli string
}

// operation is the id of the operation that it is.
func (a *act) operation() string { return cmp.Or(a.of, a.id) }

// form is an act with values: the data of the template act.
type form struct {
	Act    *act
	Route  *api.Route
	Title  string
	Fields []field
	// Key is the Idempotency-Key: the same form posted twice has one effect. Version is for If-Match.
	Key, Version string
	Back         string
	Problem      *web.Problem
	// Preview: the differences are shown, and to be confirmed. Nothing: there are none.
	Preview, Nothing bool
	CLI, Curl        string
}

// actOf returns the act of a request and its view, nil = it was answered.
func (c *Console) actOf(w http.ResponseWriter, r *http.Request) (*view, *form) {
	v := c.view(w, r)
	if v == nil {
		return nil, nil
	}
	a := c.acts[r.PathValue("act")]
	if a == nil {
		v.fail(web.New(web.NotFound, "there is no act "+r.PathValue("act")))
		return nil, nil
	}
	f := &form{Act: a, Route: c.routes[a.operation()], Title: a.title}
	v.Title, v.Data = a.title, f
	if r.Method == http.MethodPost && !parse(w, r) {
		return nil, nil
	}
	f.fill(c, r)
	if !may(v.Who, f.Route.Operation, f.value(web.CampaignValue)) {
		v.fail(web.Check(v.Who, f.Route.Operation, f.value(web.CampaignValue)))
		return nil, nil
	}
	return v, f
}

// fill reads the values of the form: of the query, or posted ones.
func (f *form) fill(c *Console, r *http.Request) {
	f.Fields = c.fieldsOf(f.Act)
	given := r.URL.Query()
	if r.Method == http.MethodPost {
		given = r.PostForm
	}
	f.Key, f.Version, f.Back = given.Get("idempotency_key"), given.Get("version"), local(given.Get("back"))
	if f.Key == "" {
		f.Key = rand.Text()
	}
	for i := range f.Fields {
		of := &f.Fields[i]
		of.Value, of.Was = strings.TrimSpace(strings.ReplaceAll(given.Get(of.Name), "\r\n", "\n")), given.Get("was."+of.Name)
		of.Given = r.Method == http.MethodGet && of.Value != ""
	}
}

// About is what the act does.
func (f *form) About() string { return cmp.Or(f.Act.about, f.Route.About, f.Route.Summary) }

// value is that of a field, "" = it has none.
func (f *form) value(name string) string {
	for i := range f.Fields {
		if f.Fields[i].Name == name {
			return f.Fields[i].Value
		}
	}
	return ""
}

// Again is the path of the form as the thing is now.
func (f *form) Again(v *view) string {
	query := []any{"back", f.Back}
	for i := range f.Fields {
		if of := &f.Fields[i]; of.InPath {
			query = append(query, of.Name, of.Value)
		}
	}
	return v.Path("/acts/"+f.Act.id, query...)
}

// Busy is the job for which this one is refused, "" = it is not.
func (f *form) Busy() string {
	if words := strings.Fields(f.Problem.Detail); f.Problem.Code == web.Code(ops.Busy) && len(words) > 1 {
		return words[1] // "job rebuild-… of this kind runs already"
	}
	return ""
}

// showAct shows the form.
func (c *Console) showAct(w http.ResponseWriter, r *http.Request) {
	v, f := c.actOf(w, r)
	if v == nil {
		return
	}
	if f.Act.edits != "" {
		now := get[map[string]json.RawMessage](v, f.with(f.Act.edits))
		if now.Problem != nil {
			v.fail(now.Problem)
			return
		}
		f.Version = now.Version
		for i := range f.Fields {
			if of := &f.Fields[i]; !of.InPath {
				of.Was = of.shown(now.Data)
				if !of.Given {
					of.Value = of.Was
				}
			}
		}
	}
	f.addLines(v)
	v.render(http.StatusOK, "act", "layout")
}

// showLines shows the command line and the curl line of what is typed.
func (c *Console) showLines(w http.ResponseWriter, r *http.Request) {
	if v, f := c.actOf(w, r); v != nil {
		f.addLines(v)
		v.render(http.StatusOK, "act", "lines")
	}
}

// postAct does it, or shows what it would change.
func (c *Console) postAct(w http.ResponseWriter, r *http.Request) {
	v, f := c.actOf(w, r)
	if v == nil {
		return
	}
	req := f.request(v)
	f.addLines(v)
	switch {
	case f.Problem != nil:
	case f.Act.typed != "" && r.PostFormValue("typed") != f.value(f.Act.typed):
		f.wrong("typed", "type "+f.value(f.Act.typed)+" to confirm")
	case f.Act.edits != "" && r.PostFormValue("step") != "do":
		f.Preview = true
		f.Nothing = !f.changed()
		v.render(http.StatusOK, "act", "layout")
		return
	default:
		a := c.call(req)
		if f.Problem = a.problem(); f.Problem == nil {
			v.done(f, a)
			return
		}
		f.place()
	}
	v.render(f.Problem.Status, "act", "layout")
}

// done leads to what follows an act.
func (v *view) done(f *form, a *answer) {
	to := f.Back
	if f.Act.then != "" {
		to = f.with(f.Act.then)
	}
	var job struct{ ID string }
	switch {
	case a.status == http.StatusAccepted && json.Unmarshal(a.body.Bytes(), &job) == nil:
		to = "/jobs/" + escape(job.ID)
	case f.Act.shows || f.Act.answers:
		v.Data = &result{Form: f, Rows: rows(a.body.Bytes()), Back: to}
		v.render(http.StatusOK, "done", "layout")
		return
	}
	if strings.Contains(to, "?") {
		to += "&done=" + f.Act.id
	} else {
		to += "?done=" + f.Act.id
	}
	http.Redirect(v.w, v.r, v.c.path(to), http.StatusSeeOther)
}

// result is the answer to an act that is shown: the data of the template done.
type result struct {
	Form *form
	Rows []row
	Back string
}

// row is a member of an answer.
type row struct{ Name, Value string }

// rows are the members of an object, in order.
func rows(object []byte) (all []row) {
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return nil
	}
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return all
		}
		text, _ := name.(string)
		all = append(all, row{text, plain(value)})
	}
	return all
}

// place gives each field its errors.
func (f *form) place() {
	for _, e := range f.Problem.Errors {
		_, name, _ := strings.Cut(e.Location, ".")
		for i := range f.Fields {
			if of := &f.Fields[i]; of.Name == name || strings.HasPrefix(of.Name, name+".") {
				of.Problem = e.Message
			}
		}
	}
}

// wrong is a problem of a field that is found here.
func (f *form) wrong(name, message string) {
	f.Problem = web.New(web.Malformed, name+": "+message).At("body."+name, message)
	f.place()
}
