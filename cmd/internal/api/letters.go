package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/readmodel"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// DeadLetter is a dead letter.
type DeadLetter struct{ readmodel.Letter }

// TransformSchema lets later versions add fields.
func (DeadLetter) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.Properties["id"] = &huma.Schema{Type: huma.TypeString, Description: "Where its line is: stream/message/line."}
	return open(s)
}

// DeadLetters is a page of dead letters.
type DeadLetters struct {
	Body struct {
		DeadLetters []DeadLetter `json:"dead_letters" nullable:"false" doc:"Newest first."`
		Next        string       `json:"next,omitempty" doc:"The value of after for the next page; absent on the last one."`
	}
}

// Retried is the result of a retry: of each line its outcome.
type Retried struct {
	Body struct {
		State    string    `json:"state" doc:"Of the dead letter afterwards: retried if all lines were accepted."`
		Outcomes []Outcome `json:"outcomes" nullable:"false"`
	}
}

func (a *API) letterRoutes() {
	Register(a, Route{Method: http.MethodGet, Path: "/v1/dead-letters", ID: "listDeadLetters", Tag: "operation", Summary: "List dead letters",
		About:     "Lines that could not be parsed or applied. They may hold codes: a key without the right to see codes gets the reasons, without what they quote, and no lines.",
		Operation: access.OpReadDeadLetters}, a.listLetters)
	Register(a, Route{Method: http.MethodPost, Path: "/v1/dead-letters/retry", ID: "retryDeadLetter", Tag: "operation", Summary: "Send a refused command line again",
		About: "Unchanged, which helps after an upgrade, or corrected. Lines keep their ids, so that a second retry has no second effect. " +
			"When all lines are accepted the dead letter is closed. Events cannot be retried.",
		Operation: access.OpRetryDeadLetters, Body: wire.MaxMessage}, a.retryLetter)
}

// letters returns the store of dead letters, or the problem of a server without read tables.
func (a *API) letters() (*readmodel.Letters, error) {
	if a.DB == nil {
		return nil, web.New(web.Unavailable, ErrNoTables.Error())
	}
	return readmodel.NewLetters(a.DB), nil
}

func (a *API) listLetters(ctx context.Context, in *struct {
	Paging
	State  string    `query:"state" enum:"open,retried,discarded,all" default:"open"`
	Stream string    `query:"stream" maxLength:"64" doc:"commands, events, or the name of a stream."`
	Since  time.Time `query:"since"`
}) (*DeadLetters, error) {
	at, err := parseCursor[struct{ Before string }]("letters", in.After)
	if err != nil {
		return nil, err
	}
	store, err := a.letters()
	if err != nil {
		return nil, err
	}
	state := readmodel.LetterState(in.State)
	if in.State == "all" {
		state = ""
	}
	filter := readmodel.LetterFilter{Stream: in.Stream, Since: in.Since, State: state, Limit: in.Limit, Before: at.Before, Masked: !principal(ctx).Codes}
	if err := filter.Check(); err != nil {
		return nil, web.New(web.Code(wire.Invalid), err.Error()).At("query", err.Error())
	}
	ctx, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	list, older, err := store.List(ctx, filter)
	if err != nil {
		return nil, unavailable("the dead letters cannot be read", err)
	}
	if err := a.unmasked(ctx, "deadletters", ""); err != nil {
		return nil, err
	}
	out := &DeadLetters{}
	out.Body.DeadLetters = make([]DeadLetter, len(list))
	for i := range list {
		out.Body.DeadLetters[i] = DeadLetter{list[i]}
	}
	if at.Before = older; older != "" {
		out.Body.Next = cursor("letters", at)
	}
	return out, nil
}

// notRetriable is the code of a dead letter that cannot be sent again, as the command line has it.
const notRetriable = web.Code("not_retriable")

func (a *API) retryLetter(ctx context.Context, in *struct {
	Body struct {
		ID        string   `json:"id" doc:"Of the dead letter, such as SCRIP_CMD_0/12/3."`
		Lines     []string `json:"lines,omitempty" nullable:"false" maxItems:"1000" doc:"Corrected lines to send instead. They take effect with your rights."`
		CommandID string   `json:"command_id,omitempty" doc:"For a line without an id; else one is derived from the dead letter."`
	}
}) (*Retried, error) {
	id, err := readmodel.ParseLetterID(in.Body.ID)
	if err != nil {
		return nil, web.New(web.Code(wire.Invalid), err.Error()).At("body.id", err.Error())
	}
	store, err := a.letters()
	if err != nil {
		return nil, err
	}
	letter, err := store.Find(ctx, id)
	switch {
	case errors.Is(err, readmodel.ErrNoLetter):
		return nil, web.New(web.NotFound, err.Error()).At("body.id", "there is no such dead letter")
	case err != nil:
		return nil, unavailable("the dead letter cannot be read", err)
	case letter.IsEvent():
		return nil, web.New(notRetriable, id.String()+" is an event: later events were applied without it. `scrip rebuild` applies it with a version that supports it")
	}
	r := readmodel.Retry{Letter: &letter, ID: in.Body.CommandID, Lines: "lines", IDName: "command_id"}
	if in.Body.Lines != nil {
		r.Text = []byte(strings.Join(in.Body.Lines, "\n"))
	}
	commands, err := r.Commands(ctx, a.letterSource)
	if err != nil {
		why := err.Error()
		if !principal(ctx).Codes {
			why = readmodel.MaskReason(why)
		}
		return nil, web.New(notRetriable, why)
	}
	out, accepted := &Retried{}, map[string]int{}
	out.Body.Outcomes, out.Body.State = []Outcome{}, string(letter.State)
	for _, cmd := range commands {
		got, err := a.sendAs(ctx, cmd)
		if err != nil {
			return nil, err
		}
		if out.Body.Outcomes = append(out.Body.Outcomes, Outcome{got}); !got.Refused() {
			accepted[got.Status]++
		}
	}
	all := 0
	for _, n := range accepted {
		all += n
	}
	if all < len(commands) {
		return out, nil
	}
	if err := store.Settle(ctx, &letter, readmodel.Retried, readmodel.RetryNote(accepted, all)); err != nil {
		return nil, web.New(web.UnknownOutcome, "the lines took effect, and the dead letter stays open: "+err.Error())
	}
	out.Body.State = string(readmodel.Retried)
	return out, nil
}

// letterSource reads the message that a dead letter quotes.
func (a *API) letterSource(ctx context.Context, l *readmodel.Letter, sequence uint64) (eventlog.Raw, error) {
	if l.IsEvent() {
		return eventlog.Events(a.JS, l.Lane).Get(ctx, sequence)
	}
	return eventlog.Commands(a.JS, l.Lane).Get(ctx, sequence)
}
