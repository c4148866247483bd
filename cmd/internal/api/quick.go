package api

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/command"
)

// quick is the short way of a route whose requests are most of the load: claims, redemptions and rollbacks.
//
//	request ──> key ──> of the usual form? ── yes ──> lane ──> its outcome line is the answer
//	                           └── no ──> huma's handler of the same route
//
// The usual form is one that huma would accept, too, so there is one definition of the route: what is refused, and the
// document, come from huma. Decoding, validation and encoding by reflection cost more than the rest of a claim.
type quick struct {
	api     *API
	route   Route
	command wire.CommandType
	huma    http.HandlerFunc
}

// quickly gives a route, which is registered after it, a short way.
func (a *API) quickly(r Route, t wire.CommandType) {
	a.quick[r.Method+" "+r.Path] = func(huma http.HandlerFunc) http.HandlerFunc {
		return (&quick{a, r, t, huma}).serve
	}
}

// quickMux is the mux on which huma registers its handlers.
type quickMux struct {
	*http.ServeMux
	quick map[string]func(huma http.HandlerFunc) http.HandlerFunc // by pattern
}

// HandleFunc implements humago.Mux.
func (m *quickMux) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	if short := m.quick[pattern]; short != nil {
		handler = short(handler)
	}
	m.ServeMux.HandleFunc(pattern, handler)
}

// enteredKey marks the context of a request whose key was checked.
type enteredKey struct{}

// exchange is one request on the short way, and a command.Receiver, which is answered exactly once.
type exchange struct {
	body []byte
	read bool // body is that of the request
	cmd  wire.Command

	line []byte
	err  error
	done chan struct{} // has room for the only answer
}

var exchanges = sync.Pool{New: func() any { return &exchange{body: make([]byte, 0, 512), done: make(chan struct{}, 1)} }}

// Answer implements command.Receiver.
func (x *exchange) Answer(line []byte, err error) {
	x.line, x.err = line, err
	x.done <- struct{}{}
}

func (q *quick) serve(w http.ResponseWriter, req *http.Request) {
	p, problem := q.api.who(q.route, w, req)
	if problem != nil {
		problem.Write(w)
		return
	}
	w.Header()["Cache-Control"] = noStore
	x := exchanges.Get().(*exchange)
	x.read = false
	if !q.answer(w, req, p, x) {
		ctx := context.WithValue(q.api.with(req, p), enteredKey{}, true)
		if req = req.WithContext(ctx); x.read {
			req.Body = io.NopCloser(bytes.NewReader(x.body))
		}
		q.huma(w, req)
	}
	x.cmd, x.line, x.err = wire.Command{}, nil, nil // nothing of this request is kept
	exchanges.Put(x)
}

// answer carries out a request of the usual form. false: it has another one, and nothing was written.
func (q *quick) answer(w http.ResponseWriter, req *http.Request, p access.Principal, x *exchange) bool {
	if p.Person() || !usual(req) { // codes may have to be masked
		return false
	}
	var problem *web.Problem
	if x.body, problem = web.Body(w, req, x.body[:0], wire.MaxLine); problem != nil {
		problem.Write(w)
		return true
	}
	x.read = true
	if !q.parse(req, x) || q.route.Later && x.cmd.Campaign == "" && p.Campaigns != nil {
		return false
	}
	x.cmd.ID = commandID(p, req.Header.Get("Idempotency-Key"))
	repeat, problem := q.tried(req, p, x)
	if problem != nil {
		problem.Write(w)
		return true
	}
	if repeat && p.Public && q.command == wire.Claim {
		if x.line, problem = q.api.hideClaimLine(req.Context(), p, x.line); problem != nil {
			problem.Write(w)
			return true
		}
	}
	header, status := w.Header(), q.route.Status
	header["Content-Type"] = jsonType
	header["Scrip-Command-Id"] = []string{x.cmd.ID}
	if repeat {
		header["Idempotency-Replayed"] = replayed
		status = http.StatusOK
	}
	x.body = append(append(x.body[:0], x.line...), '\n')
	w.WriteHeader(status)
	_, _ = w.Write(x.body) // the client may have closed the connection
	return true
}

// tried is send within the budget for wrong codes, see API.tried.
func (q *quick) tried(req *http.Request, p access.Principal, x *exchange) (repeat bool, problem *web.Problem) {
	if x.cmd.Code == "" {
		return q.send(req.Context(), p, x)
	}
	end, problem := q.api.try(p, req.RemoteAddr)
	if problem != nil {
		return false, problem
	}
	wrong := false
	defer func() { end(wrong) }()
	if repeat, problem = q.send(req.Context(), p, x); problem != nil {
		wrong, problem = judged(p, problem)
	}
	return repeat, problem
}

// send sends the command of a request, and waits for the line of its outcome. There is an answer by the command's
// deadline, so the wait has no timer of its own. A client that goes meanwhile is not noticed: the command has its effect in any case.
func (q *quick) send(ctx context.Context, p access.Principal, x *exchange) (repeat bool, problem *web.Problem) {
	if q.route.Later && x.cmd.Campaign != "" {
		if problem := web.Check(p, q.route.Operation, x.cmd.Campaign); problem != nil {
			return false, problem
		}
	}
	if _, err := q.api.Lanes.Send(ctx, &x.cmd, command.Call{By: p.By(), Deadline: time.Now().Add(commandWait), To: x}); err != nil {
		return false, web.Failed(err, x.cmd.ID)
	}
	<-x.done
	if x.err != nil {
		return false, web.Failed(x.err, x.cmd.ID)
	}
	verdict, err := wire.VerdictOf(x.line)
	if err == nil && !verdict.Refused {
		return verdict.Repeat, nil
	}
	out, err := wire.ParseOutcome(x.line)
	if err != nil {
		return false, web.Failed(&command.UnknownError{ID: x.cmd.ID, Cause: err}, x.cmd.ID)
	}
	return false, web.Refused(&out)
}

// parse reads the command. Fields that the log's lines have and bodies do not, and null, are left to huma.
func (q *quick) parse(req *http.Request, x *exchange) bool {
	def := wire.Defaults{Type: q.command, NoID: true}
	others := otherFields[1:]
	if !q.route.Later {
		def.Campaign, others = req.PathValue(web.CampaignValue), otherFields
		if def.Campaign == "" {
			return false
		}
	}
	for _, field := range others {
		if bytes.Contains(x.body, field) {
			return false
		}
	}
	return x.cmd.ParseView(x.body, def) == nil && x.cmd.N == 0 // its texts are views of the body
}

// otherFields are those of the log's lines that no body has, but for the first one, which bodies have whose path lacks it.
var otherFields = [][]byte{[]byte(`"campaign"`), []byte(`"id"`), []byte(`"type"`), []byte("null")}

// usual reports whether the parts of a request besides its body have the usual form.
func usual(req *http.Request) bool {
	return req.URL.RawQuery == "" && req.ContentLength > 0 && req.ContentLength <= wire.MaxLine &&
		oneOf(req.Header["Content-Type"], jsonType) && oneOf(req.Header["Accept"], accepted)
}

// accepted is what most clients send.
var accepted = []string{"*/*", "application/json", "application/json, text/plain, */*"}

// oneOf reports whether a header is absent, or there once with one of the values.
func oneOf(given, values []string) bool {
	return len(given) == 0 || len(given) == 1 && slices.Contains(values, given[0])
}

// Values of headers that are the same in every answer; they are only read.
var (
	jsonType = []string{"application/json"}
	noStore  = []string{"no-store"}
	replayed = []string{"true"}
)
