package console

import (
	"encoding/json"
	"errors"
	"html/template"
	"io"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/projections/replay"
)

func init() {
	moreRoutes = append(moreRoutes,
		route{"GET /campaigns/{campaign}/export", func(c *Console, w http.ResponseWriter, r *http.Request) {
			c.download(w, r, "/v1/campaigns/"+escape(r.PathValue("campaign"))+"/codes", r.PathValue("campaign")+".csv")
		}},
		route{"GET /campaigns/{campaign}/allotments/{batch}", func(c *Console, w http.ResponseWriter, r *http.Request) {
			c.download(w, r, "/v1/campaigns/"+escape(r.PathValue("campaign"))+"/allotments/"+escape(r.PathValue("batch"))+"/codes", r.PathValue("batch")+".csv")
		}},
		route{"POST /campaigns/{campaign}/import", (*Console).importCodes})
}

// download sends an answer of /v1 as a file, as it comes. A problem is a page.
func (c *Console) download(w http.ResponseWriter, r *http.Request, path, name string) {
	v := c.view(w, r)
	if v == nil {
		return
	}
	d := &downloading{ResponseWriter: w, name: name}
	c.V1.ServeHTTP(d, request(r, v.Who, http.MethodGet, path, nil))
	if d.failed.status != 0 {
		w.Header().Del("Content-Type")
		w.Header().Del("Content-Length")
		v.fail(d.failed.problem())
	}
}

// downloading makes an answer a file, and keeps a problem.
type downloading struct {
	http.ResponseWriter
	name   string
	begun  bool
	failed answer
}

func (d *downloading) WriteHeader(status int) {
	switch {
	case d.begun:
	case status >= 400:
		d.failed.status = status
	default:
		d.Header().Set("Content-Disposition", "attachment; filename="+strconv.Quote(d.name))
		d.ResponseWriter.WriteHeader(status)
	}
	d.begun = true
}

func (d *downloading) Write(b []byte) (int, error) {
	d.WriteHeader(http.StatusOK)
	if d.failed.status != 0 {
		return d.failed.Write(b)
	}
	return d.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (d *downloading) Unwrap() http.ResponseWriter { return d.ResponseWriter }

// importCodes sends a file of codes to /v1 as it arrives, and shows how far it is while it does. The page is written in pieces: what
// comes before the progress, a line for each second, the report.
func (c *Console) importCodes(w http.ResponseWriter, r *http.Request) {
	v := c.view(w, r)
	if v == nil {
		return
	}
	campaign := r.PathValue("campaign")
	v.Page, v.Title = pageNamed("codes"), "Import into "+campaign
	stream := web.NewStream(w)
	query, file, problem := upload(stream, r)
	if problem != nil {
		stream.Writing(liveWait)
		v.fail(problem)
		return
	}
	req := request(r, v.Who, http.MethodPost, "/v1/campaigns/"+escape(campaign)+"/codes"+query, io.NopCloser(file))
	req.Header.Set("Content-Type", "text/csv")
	_ = stream.Duplex() // else the progress comes when the file was read
	out := &importing{v: v, stream: stream, header: http.Header{}}
	c.V1.ServeHTTP(out, req)
	out.end()
}

// upload returns the file of a form, and what its fields add to the query. What comes before the file arrives at the least rate, too.
func upload(stream web.Stream, r *http.Request) (query string, file io.Reader, problem *web.Problem) {
	form := r.WithContext(r.Context())
	form.Body = io.NopCloser(stream.Body(r.Body))
	parts, err := form.MultipartReader()
	for err == nil {
		var part *multipart.Part
		if part, err = parts.NextPart(); err != nil {
			break
		}
		switch part.FormName() {
		case "weak_codes":
			query = "?weak_codes=1"
		case "file":
			return query, part, nil
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return "", nil, web.New(web.Malformed, "choose a file")
	case web.Late(err):
		return "", nil, web.New(web.Malformed, "the file did not arrive in time; send it again, over a faster connection")
	}
	return "", nil, web.New(web.Malformed, "choose a file: "+err.Error())
}

// importing turns the lines of an import into a page.
type importing struct {
	v       *view
	stream  web.Stream
	header  http.Header
	status  int
	rest    []byte
	last    api.Import
	problem answer
}

func (i *importing) Header() http.Header         { return i.header }
func (i *importing) Unwrap() http.ResponseWriter { return i.v.w }
func (i *importing) Flush()                      { _ = i.stream.Flush() }

func (i *importing) WriteHeader(status int) {
	if i.status != 0 {
		return
	}
	if i.status = status; status >= 400 {
		i.problem.status = status
		return
	}
	i.v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	i.v.Data = i
	i.piece("import-start")
}

func (i *importing) Write(b []byte) (int, error) {
	i.WriteHeader(http.StatusOK)
	if i.problem.status != 0 {
		return i.problem.Write(b)
	}
	i.rest = append(i.rest, b...)
	for {
		line, rest, whole := strings.Cut(string(i.rest), "\n")
		if !whole {
			return len(b), nil
		}
		i.rest = []byte(rest)
		if json.Unmarshal([]byte(line), &i.last) == nil {
			i.piece("import-line")
		}
	}
}

// piece writes a part of the page.
func (i *importing) piece(name string) {
	i.stream.Writing(liveWait)
	if err := templates["import"].ExecuteTemplate(i.v.w, name, i.v); err != nil {
		i.v.c.Logger.Debug("a page cannot be written", "page", "import", "err", err)
	}
	_ = i.stream.Flush()
}

// end writes the report.
func (i *importing) end() {
	if i.problem.status != 0 {
		i.stream.Writing(liveWait)
		i.v.fail(i.problem.problem())
		return
	}
	i.piece("import-end")
}

// Last is the line that came last.
func (i *importing) Last() api.Import { return i.last }

// Rejects are the unusable rows as a CSV file in a link.
func (i *importing) Rejects() template.URL {
	var b strings.Builder
	w := replay.NewCSVWriter(&b)
	_ = w.Write("row", "reason") // to memory
	for _, r := range i.last.Rejects {
		_ = w.Write(strconv.Itoa(r.Row), r.Reason)
	}
	_ = w.Flush()
	return template.URL("data:text/csv;charset=utf-8," + strings.ReplaceAll(escape(b.String()), "+", "%20")) //nolint:gosec // it is escaped
}
