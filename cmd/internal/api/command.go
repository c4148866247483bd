package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/command"
)

// commandWait is how long a command may take before its outcome is unknown.
const commandWait = 5 * time.Second

// commandRoute is a route whose request is one command. It has no handler of its own: what the request may have, and its schema,
// follow from the command's fields in domain/wire, whose parser reads the body as it reads a line of the log.
//
//	path, body ──> wire.Command ──> may the key? ──> lane ──> outcome line ──> the body, or the campaign as it is then
//
// Claims and redemptions are most of the load: decoding and encoding by reflection would cost more than the rest of one.
type commandRoute struct {
	Route
	command wire.CommandType
	// campaign: the answer is the campaign as it is afterwards, and not the outcome.
	campaign bool

	// These follow from the others.
	body      []wire.Description // the fields in the body; there is no body if it has none
	path      []string           // the fields in the path, besides the campaign
	versioned bool               // If-Match has a version of the campaign
}

// addCommand adds a route of a command.
func (a *API) addCommand(c commandRoute) {
	c.Operation = access.OperationOf(c.command)
	c.Later = !strings.Contains(c.Path, "{"+web.CampaignValue+"}")
	for _, f := range c.command.Describe() {
		switch {
		case f.Name == "if_version":
			c.versioned = true
		case f.Name == "campaign" && !c.Later:
		case strings.Contains(c.Path, "{"+f.Name+"}"):
			c.path = append(c.path, f.Name)
		default:
			c.body = append(c.body, f)
		}
	}
	a.describe(c.Route, a.commandOperation(&c), c.command.Refusals()...)
	a.mux.HandleFunc(c.Method+" "+c.Path, func(w http.ResponseWriter, req *http.Request) { a.serveCommand(w, req, &c) })
}

// exchange is one request with a command.
type exchange struct {
	body []byte
	cmd  wire.Command // its texts are views of body
}

var exchanges = sync.Pool{New: func() any { return &exchange{body: make([]byte, 0, 512)} }}

func (a *API) serveCommand(w http.ResponseWriter, req *http.Request, c *commandRoute) {
	p, problem := a.who(c.Route, w, req)
	if problem != nil {
		problem.Write(w)
		return
	}
	x := exchanges.Get().(*exchange)
	err := c.read(w, req, x)
	if err == nil {
		x.cmd.ID = commandID(p, req.Header.Get("Idempotency-Key"))
		err = a.carryOut(w, req, p, c, x)
	}
	if err != nil {
		a.refuse(w, err)
	}
	x.cmd = wire.Command{} // nothing of this request is kept
	exchanges.Put(x)
}

// read reads the command of a request.
func (c *commandRoute) read(w http.ResponseWriter, req *http.Request, x *exchange) error {
	if problem := noQuery(req); problem != nil {
		return problem
	}
	campaign := req.PathValue(web.CampaignValue)
	if !c.Later {
		if err := checkCampaign(campaign); err != nil {
			return err
		}
	}
	version := ""
	if c.versioned {
		var problem *web.Problem
		if version, problem = ifMatch(req, c.Method == http.MethodPatch); problem != nil {
			return problem
		}
	}
	if len(c.body) == 0 {
		x.body = c.appendPath(x.body[:0], req)
	} else {
		if problem := web.CheckMediaType(req, "application/json"); problem != nil {
			return problem
		}
		var problem *web.Problem
		if x.body, problem = web.Body(w, req, x.body[:0], wire.MaxLine); problem != nil {
			return problem
		}
	}
	if err := x.cmd.ParseView(x.body, wire.Defaults{Type: c.command, Campaign: campaign, Body: true}); err != nil {
		return c.misread(err, campaign)
	}
	x.cmd.IfVersion, x.cmd.RequestID = version, sentRequestID(w)
	return nil
}

// appendPath appends the fields in the path, as a line has them. The parser notices one that is missing.
func (c *commandRoute) appendPath(line []byte, req *http.Request) []byte {
	line = append(line, '{')
	for i, name := range c.path {
		if i > 0 {
			line = append(line, ',')
		}
		line = wire.AppendText(append(wire.AppendText(line, name), ':'), req.PathValue(name))
	}
	return append(line, '}')
}

// misread is the problem of a command that the parser refused.
func (c *commandRoute) misread(err error, campaign string) *web.Problem {
	problem := web.Invalid(err, "body", "", campaign)
	if at := &problem.Errors[0].Location; slices.Contains(c.path, strings.TrimPrefix(*at, "body.")) {
		*at = "path." + strings.TrimPrefix(*at, "body.")
	}
	return problem
}

// carryOut sends the command of a request, and answers with what came of it.
func (a *API) carryOut(w http.ResponseWriter, req *http.Request, p access.Principal, c *commandRoute, x *exchange) error {
	out, err := a.permitted(req, p, c, &x.cmd)
	if err != nil {
		return err
	}
	if !out.Repeat && p.Recorded(c.command) {
		a.recordCommand(a.with(w, req, p), c.command, &out, x.cmd.N != 0)
	}
	if p.Person() || p.Withholds(c.command, &out) {
		if err := a.hide(a.with(w, req, p), c.command, &out, x.cmd.N != 0); err != nil {
			return err
		}
	}
	header, status := w.Header(), c.complete().Status
	if c.campaign {
		x.body, err = a.campaignAfter(req.Context(), header, &out)
	} else {
		x.body = out.AppendJSON(x.body[:0])
	}
	if err != nil {
		return err
	}
	if out.Repeat {
		header["Idempotency-Replayed"] = replayed
		status = http.StatusOK
	} else if at := location(c.command, &out); at != "" && !p.Public { // which may not read it
		header["Location"] = []string{a.Prefix + at}
	}
	header["Cache-Control"] = noStore
	header["Content-Type"] = jsonType
	id := []string{x.cmd.ID}
	if header["Scrip-Command-Id"] = id; header[web.RequestID] == nil {
		header[web.RequestID] = id
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(x.body, '\n')) // the client may have closed the connection
	return nil
}

// recordCommand adds a command of a person to the audit stream. Its event has who sent it: the answer does not wait for an entry that
// cannot be stored.
func (a *API) recordCommand(ctx context.Context, t wire.CommandType, out *wire.Outcome, byN bool) {
	about := out.Campaign
	if out.N != 0 {
		about = audit.Coupon(out.Campaign, out.N, byN)
	}
	if err := a.record(ctx, audit.Commands, t.String(), about); err != nil {
		a.Logger.Warn("a command is not in the audit stream", "command", t, "id", out.ID, "err", err)
	}
}

// location is where to read what a command made, "" = nothing.
func location(t wire.CommandType, out *wire.Outcome) string {
	campaign := "/v1/campaigns/" + out.Campaign
	switch t {
	case wire.CreateCampaign:
		return campaign
	case wire.Allot:
		return campaign + "/allotments/" + out.Batch + "/codes"
	case wire.Claim:
		return campaign + "/coupons/" + strconv.Itoa(int(out.N))
	case wire.Redeem:
		return campaign + "/coupons/" + strconv.Itoa(int(out.N)) + "/redemptions/" + url.PathEscape(out.OrderID)
	case wire.Remind:
		return campaign + "/reminders/" + url.PathEscape(out.CustomerID) + "/" + out.Kind + "/" + wire.Period(out.Before).String()
	}
	return ""
}

// sentRequestID is the X-Request-Id of a request of commands, "" = its client has sent none.
func sentRequestID(w http.ResponseWriter) string {
	if given := w.Header()[web.RequestID]; given != nil {
		return given[0]
	}
	return ""
}

// Values of headers that are the same in every answer; they are only read.
var (
	jsonType = []string{"application/json"}
	noStore  = []string{"no-store"}
	replayed = []string{"true"}
)

// permitted sends the command of a request if its key may do that: one about a code within the budget for wrong codes.
func (a *API) permitted(req *http.Request, p access.Principal, c *commandRoute, cmd *wire.Command) (out wire.Outcome, err error) {
	ctx := req.Context()
	if p.Recorded(c.command) && p.CheckRole(c.Operation) == nil {
		if err := a.room(p); err != nil {
			return out, err
		}
	}
	if !c.command.HasCode() {
		if problem := web.Check(p, c.Operation, cmd.Campaign); problem != nil {
			return out, problem
		}
		return a.send(ctx, p, cmd)
	}
	if cmd.N != 0 && !p.Person() {
		return out, guessable("body.n")
	}
	err = a.tried(p, req.RemoteAddr, func() (err error) {
		if cmd.Campaign, err = a.campaignOf(ctx, p, c.Operation, cmd.Code, cmd.Campaign); err == nil {
			out, err = a.send(ctx, p, cmd)
		}
		return err
	})
	return out, err
}

// send sends a command that has an id, and waits for its outcome; a refusal is an error. The wait has no timer of its own: there is
// an answer by the command's deadline, and it has whether the command was sent.
func (a *API) send(ctx context.Context, p access.Principal, cmd *wire.Command) (wire.Outcome, error) {
	w := command.NewWaiter()
	call := command.Call{By: p.By(), Deadline: time.Now().Add(commandWait), To: w}
	var end func(error)
	if a.Trace != nil {
		call.Trace, end = a.Trace(ctx, cmd.Type.String())
	}
	ticket, err := a.Lanes.Send(ctx, cmd, call)
	out, err := w.Wait(ctx, cmd.ID, ticket, err)
	if end != nil {
		end(err)
	}
	switch {
	case err != nil:
		return out, web.Failed(err, cmd.ID)
	case out.Refused():
		return out, web.Refused(&out)
	}
	return out, nil
}

// campaignAfter returns the campaign of a command as it is now, and sets its ETag.
func (a *API) campaignAfter(ctx context.Context, header http.Header, out *wire.Outcome) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	v, err := a.Queries.Campaign(ctx, out.Campaign)
	if err != nil {
		problem := web.New(web.UnknownOutcome, "it was done, but the campaign cannot be read at the moment: "+err.Error())
		problem.ID, problem.Campaign = out.ID, out.Campaign
		return nil, problem
	}
	header.Set("ETag", `"`+v.Version+`"`)
	return json.Marshal(v)
}

// noQuery returns the problem of a parameter in the query.
func noQuery(req *http.Request) *web.Problem {
	if req.URL.RawQuery == "" {
		return nil
	}
	for given := range req.URL.Query() {
		return web.New(web.Malformed, "query: there is no parameter "+given).At("query."+given, "unknown query parameter")
	}
	return nil
}

// Headers of commands, in the document.
const (
	aboutIdempotencyKey = "Of your choice, one for each change. A retry with the same one has no second effect and gets the first answer, or " +
		"409 where what it did is over. Commands are remembered per campaign, for the campaign's life, and without one the server makes " +
		"an id, in Scrip-Command-Id of the answer and id of its body, which a retry sends as this header. All else is remembered for 24 " +
		"hours: while the first request is under way, or if it was cut off, a retry is 503 unknown_outcome and names what to read."
	aboutCommandID = "The id of the command in the log. If the request had no Idempotency-Key, send it as that to repeat the request."
	aboutReplayed  = "true: nothing was written; the command was decided before, or what it requests is so already."
)

// maxIdempotencyKey bounds the header, in bytes.
const maxIdempotencyKey = 255

var idEncoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// Lengths of the parts of an id that the server makes, in symbols of 5 bits.
const (
	madePrefix = "m"
	madeRandom = 24 // of one of 10^9 ids of a campaign, the chance to be equal to another is 10^-18
	madeCheck  = 12
)

// checkIdempotencyKey returns the problem of a header that has no meaning, also where nothing is changed.
func checkIdempotencyKey(given []string) *web.Problem {
	wrong := func(c web.Code, message string) *web.Problem {
		return web.New(c, "Idempotency-Key "+message).At("header.Idempotency-Key", message)
	}
	switch {
	case len(given) == 0:
		return nil
	case len(given) > 1 || given[0] == "":
		return wrong(web.Malformed, "must be given once, with a value, or not at all")
	case len(given[0]) > maxIdempotencyKey || strings.ContainsFunc(given[0], func(c rune) bool { return c < ' ' || c > '~' }):
		return wrong(web.Code(wire.Invalid), "must be 1 to 255 printable ASCII characters")
	}
	return nil
}

// commandID is the id of the command of a request: of its Idempotency-Key, and of the client that sent it, so that two clients
// that choose the same one never meet, and one whose key was rotated repeats its commands; without one it is new.
//
// An id that the server made for this client may be sent as Idempotency-Key, and is the id then: a client whose first request
// had none retries it like that. Such an id ends with a checksum over the rest and the client's name: that of another client is
// an Idempotency-Key like any other.
func commandID(p access.Principal, idempotencyKey string) string {
	switch {
	case idempotencyKey == "":
		var random [16]byte
		_, _ = rand.Read(random[:]) // never fails
		text := madePrefix + symbols(random[:], madeRandom)
		return text + madeFor(p, text)
	case madeID(p, idempotencyKey):
		return idempotencyKey
	}
	sum := sha256.Sum256([]byte(p.Client() + "\x00" + idempotencyKey))
	return "h" + symbols(sum[:], 25)
}

// madeID reports whether the server made this id for a client.
func madeID(p access.Principal, id string) bool {
	text := len(madePrefix) + madeRandom
	return len(id) == text+madeCheck && strings.HasPrefix(id, madePrefix) && id[text:] == madeFor(p, id[:text])
}

// madeFor is the checksum of an id that the server makes for a client.
func madeFor(p access.Principal, text string) string {
	sum := sha256.Sum256([]byte("made\x00" + p.Client() + "\x00" + text))
	return symbols(sum[:], madeCheck)
}

// symbols are the first n symbols of bytes as text.
func symbols(b []byte, n int) string { return idEncoding.EncodeToString(b)[:n] }
