package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/once"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

func (a *API) bulkRoute() {
	readStream(a, Route{Method: http.MethodPost, Path: "/v1/commands", ID: "sendCommands", Tag: "shop", Summary: "Send many commands",
		About: "Lines of claim, redeem, rollback, remind and unremind as CONTRACT.md has them, up to 1,000 and 256 KiB, each with an id of " +
			"its own. The answer has an outcome for each, in their order. A line that was refused has status refused, with refusal " +
			"not_durable if it was not sent or stored: it has no effect. " +
			"One without status has an unknown result. Send both again with their ids; an Idempotency-Key is for all lines. " +
			"Public keys may not use it.",
		Operation: access.OpClaim, Later: true, Body: wire.MaxMessage},
		huma.Operation{
			RequestBody: &huma.RequestBody{Required: true, Content: lines(a.commandLine())},
			Responses:   answer("200", "Outcome lines.", lines(a.schema(reflect.TypeFor[Outcome]()))),
		}, a.sendCommands)
}

// sendCommands sends lines and waits for all their outcomes. Nothing is sent if there are too many of them.
func (a *API) sendCommands(w http.ResponseWriter, req *http.Request, _ *struct{}) {
	p := principal(req.Context())
	if p.Public {
		web.New(web.Forbidden, "public keys may not use this route; they claim and validate one by one").Write(w)
		return
	}
	if problem := web.CheckMediaType(req, ndjson); problem != nil {
		problem.Write(w)
		return
	}
	if p.Person() {
		if err := a.unmasked(req.Context(), "commands", ""); err != nil {
			a.refuse(w, err)
			return
		}
	}
	body, problem := web.Body(w, req, nil, wire.MaxMessage)
	if problem != nil {
		problem.Write(w)
		return
	}
	var all [][]byte
	for _, line := range eventlog.Lines(body) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			all = append(all, line)
		}
	}
	if len(all) == 0 || len(all) > wire.MaxMessageLines {
		invalid("body", "the body must have 1 to 1000 lines").Write(w)
		return
	}
	// Lines have ids: those of a retry have the same outcomes. For a key whose repeats show no codes they have not.
	one := once.Request{Owner: once.Owner{For: once.Short}, Body: append([]byte("commands\n"), body...), Repeatable: true, Again: !p.NewOnly}
	out, again, err := a.Ops.DoOnce(req.Context(), author(req.Context()), one, func(string) ([]byte, bool, error) { return a.sendLines(req, p, all) })
	if err != nil {
		a.refused(w, ops.RefusalOf(err), nil).Write(w)
		return
	}
	if again {
		w.Header()["Idempotency-Replayed"] = replayed
	}
	w.Header().Set("Content-Type", ndjson)
	w.Header().Set("Content-Length", strconv.Itoa(len(out)))
	_, _ = w.Write(out) // the client may have closed the connection
}

// sendLines sends lines and returns their outcomes. undecided: one has none that would be the same after a retry.
func (a *API) sendLines(req *http.Request, p access.Principal, all [][]byte) (out []byte, undecided bool, err error) {
	b := bulk{api: a, principal: p, from: req.RemoteAddr, request: req.Header.Get(web.RequestID), until: time.Now().Add(commandWait),
		entries: make([]bulkEntry, len(all)), done: make(chan struct{})}
	if b.principal.Campaigns != nil {
		b.lookUp(req.Context(), all)
		b.until = time.Now().Add(commandWait)
	}
	b.left.Store(int32(len(all)))
	for i, line := range all {
		b.send(req.Context(), &b.entries[i], line)
	}
	<-b.done // there is an answer by the deadline
	for i := range b.entries {
		out = append(append(out, b.entries[i].outcome...), '\n')
		undecided = undecided || b.entries[i].undecided
	}
	return out, undecided, nil
}

// bulk is the lines of one request.
type bulk struct {
	api       *API
	principal access.Principal
	from      string    // address of the client
	request   string    // its X-Request-Id; "" = it has sent none
	until     time.Time // of each line
	found     map[lookUp]*found
	cmd       wire.Command // the line that is being sent
	entries   []bulkEntry
	left      atomic.Int32  // lines without an outcome
	done      chan struct{} // closed when there are none left
}

// lookUp is a code in a line without a campaign, of a key that is limited to campaigns.
type lookUp struct {
	access.Operation
	code string
}

// found is its campaign, or a *web.Problem.
type found struct {
	campaign string
	err      error
}

// maxLookUps bounds the codes of one request that are looked up at once.
const maxLookUps = 32

// lookUp finds the campaigns of such codes before any line is sent, so that lines are sent in their order.
func (b *bulk) lookUp(ctx context.Context, lines [][]byte) {
	ctx, cancel := context.WithTimeout(ctx, commandWait)
	defer cancel()
	b.found = map[lookUp]*found{}
	var g errgroup.Group
	g.SetLimit(maxLookUps)
	for _, line := range lines {
		var cmd wire.Command
		if cmd.ParseView(line, wire.Defaults{}) != nil || cmd.Campaign != "" || cmd.Code == "" || !wire.ScopeProducer.Allows(cmd.Type) {
			continue
		}
		of := lookUp{access.OperationOf(cmd.Type), cmd.Code}
		if b.found[of] == nil {
			f := &found{}
			b.found[of] = f
			g.Go(func() error {
				f.campaign, f.err = b.api.campaignOf(ctx, b.principal, of.Operation, of.code, "")
				return nil
			})
		}
	}
	_ = g.Wait() // each has its own error
}

// bulkEntry is one line, and the command.Receiver of its outcome.
type bulkEntry struct {
	of           *bulk
	id, campaign string
	command      wire.CommandType
	end          func(wrong bool) // of the budget; nil = the line has no code
	outcome      []byte
	undecided    bool // it may have another outcome after a retry
}

// Answer implements command.Receiver.
func (e *bulkEntry) Answer(line []byte, err error) {
	wrong := false
	var notSent *command.NotSentError
	switch {
	case errors.As(err, &notSent):
		e.unsent(err)
		return
	case err != nil:
		e.undecided = true
		unknown := wire.Outcome{ID: e.id, Campaign: e.campaign, Message: "the outcome is not known; send the line again with its id"}
		line = unknown.AppendJSON(nil)
	case e.end != nil || e.of.principal.Person() || e.of.principal.NewOnly:
		if out, err := wire.ParseOutcome(line); err == nil {
			wrong = out.Refusal == wire.CodeNotFound
			if e.of.principal.Hide(&out); e.of.principal.Withholds(e.command, &out) { // its sender chose the id: that proves nothing
				access.Withhold(&out)
			}
			line = out.AppendJSON(nil)
		}
	}
	if e.end != nil {
		e.end(wrong)
	}
	e.finish(line)
}

// unsent ends a line that was not sent: it has no effect.
func (e *bulkEntry) unsent(err error) {
	if e.end != nil {
		e.end(false)
	}
	e.undecided = true
	e.refuse(wire.NotDurable, err.Error())
}

// refuse ends a line that has no effect.
func (e *bulkEntry) refuse(r wire.Refusal, why string) {
	out := wire.Outcome{ID: e.id, Campaign: e.campaign, Status: wire.StatusRefused, Refusal: r, Message: why}
	e.finish(out.AppendJSON(nil))
}

func (e *bulkEntry) finish(outcome []byte) {
	e.outcome = outcome
	if e.of.left.Add(-1) == 0 {
		close(e.of.done)
	}
}

// send sends one line, or refuses it.
func (b *bulk) send(ctx context.Context, e *bulkEntry, line []byte) {
	e.of = b
	cmd := &b.cmd
	err := cmd.ParseView(line, wire.Defaults{})
	cmd.ID = strings.Clone(cmd.ID) // Lanes keep it
	e.id, e.campaign, e.command = cmd.ID, cmd.Campaign, cmd.Type
	if err != nil {
		e.refuse(wire.Invalid, err.Error())
		return
	}
	cmd.RequestID = cmp.Or(cmd.RequestID, b.request)
	if problem := b.permit(e, cmd); problem != nil {
		e.undecided = problem.Status == http.StatusTooManyRequests
		e.refuse(wire.Refusal(problem.Code), problem.Detail)
		return
	}
	if _, err := b.api.Lanes.Send(ctx, cmd, command.Call{By: b.principal.By(), Deadline: b.until, To: e}); err != nil {
		e.unsent(err)
	}
}

// permit returns why a line may not be sent. That of a code has room in the budget for wrong ones then, and its campaign.
func (b *bulk) permit(e *bulkEntry, cmd *wire.Command) (problem *web.Problem) {
	operation := access.OperationOf(cmd.Type)
	looked := b.found[lookUp{operation, cmd.Code}]
	if cmd.Campaign != "" {
		looked = nil
	}
	switch {
	case !wire.ScopeProducer.Allows(cmd.Type):
		return web.New(web.Code(wire.Invalid), "type: "+cmd.Type.String()+" has a route of its own")
	case cmd.N != 0 && !b.principal.Person():
		return guessable("n")
	}
	if looked == nil {
		if problem = web.Check(b.principal, operation, cmd.Campaign); problem != nil {
			return problem
		}
	}
	if wait := b.api.Gate.Rates.Take(b.principal); wait > 0 {
		return web.New(web.RateLimited, fmt.Sprintf("this key may make %d requests a second, and each line counts; send it again after %s",
			b.principal.Rate, wait.Round(time.Millisecond)))
	}
	if cmd.Code != "" {
		if e.end, problem = b.api.try(b.principal, b.from); problem != nil {
			return problem
		}
	}
	if looked == nil {
		return nil
	}
	if errors.As(looked.err, &problem) {
		e.end(problem.Code == web.Code(wire.CodeNotFound))
		return problem
	}
	cmd.Campaign = looked.campaign
	return nil
}
