package api

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/replay"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// eventBatch bounds what is in memory for one client, and how much it may get again after it resumed.
var eventBatch = fill.Limits{Lines: 1000, Bytes: 1 << 20}

// EventsWanted selects events.
type EventsWanted struct {
	After    string `json:"after,omitempty" doc:"A cursor; now: only what follows; absent: from the first event."`
	Types    string `json:"types,omitempty" doc:"Types of events, separated by commas, such as coupon.claimed,coupon.redeemed."`
	Campaign string `json:"campaign,omitempty" doc:"Names of campaigns, separated by commas."`
	Follow   string `json:"follow,omitempty" enum:"0,1" doc:"1: do not end, but continue with new events as they are stored."`
	Token    string `json:"token,omitempty" maxLength:"64" doc:"Of POST /v1/events/tokens, instead of Authorization, for an EventSource in a browser: once."`
}

// EventToken is a token.
type EventToken struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expires_at"`
}

// readEventsID is the route that takes tokens.
const readEventsID = "readEvents"

func (a *API) eventRoutes() {
	readStream(a, Route{Method: http.MethodGet, Path: "/v1/events", ID: readEventsID, Tag: "events", Summary: "Read the log of events",
		About: "NDJSON; or server-sent events with Accept: text/event-stream, where the id of an event is the cursor and Last-Event-ID continues. " +
			"Each lane is in its order; lanes are read one after another, and with follow side by side. A client that reconnects may get events after its cursor again: " +
			"lane, sequence and line identify them. Without the right to see codes, or customers, these are keyed hashes, equal for equal ones. " +
			"While nothing happens a cursor is sent every 15 seconds. A client that takes nothing for 30 seconds is cut off.",
		Operation: access.OpReadEvents, Later: true},
		huma.Operation{
			Parameters: []*huma.Param{
				{Name: "Last-Event-ID", In: "header", Description: "A cursor, instead of after. Browsers send it.", Schema: text("")},
			},
			Responses: answer("200", "Lines.", map[string]*huma.MediaType{ndjson: {Schema: a.eventStreamLine()}, eventStream: {Schema: text("Server-sent events; data is a line.")}}),
		}, a.readEvents)
	read(a, fieldRoute{Route: Route{Method: http.MethodPost, Path: "/v1/events/tokens", ID: "createEventToken", Tag: "events", Status: http.StatusCreated, Reads: true,
		Summary: "Make a token that reads events once",
		About: "For an EventSource in a browser, which sends no Authorization. It works for one request within a minute, with the rights that the key has " +
			"then. An EventSource that reconnects by itself gets 401: make another token, and continue with after.",
		Operation: access.OpReadEvents, Later: true}}, a.createEventToken)
	read(a, fieldRoute{Route: Route{Method: http.MethodPost, Path: "/v1/logins", ID: "createLogIn", Tag: "operation", Status: http.StatusCreated, Reads: true,
		Summary:   "Make a link that logs a browser in once",
		About:     "To the console, as the key that makes it. It works once, within a minute, and opens nothing else.",
		Operation: access.OpOpenConsole, Later: true}}, a.createLogIn)
}

// LogInLink logs a browser in, once.
type LogInLink struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expires_at"`
	Path    string    `json:"path" doc:"Of the page that logs in, below the URL of the server."`
}

// LogInWanted is who logs in.
type LogInWanted struct {
	Name string `json:"name,omitempty" maxLength:"64" doc:"With the credentials of the data directory: who uses them, such as ann@ops1."`
}

func (a *API) createLogIn(ctx context.Context, in *LogInWanted) (LogInLink, error) {
	p := principal(ctx)
	if p.ID == "" && in.Name != "" {
		p = access.Local(in.Name)
	}
	token, expires, err := a.Gate.MakeLogIn(ctx, p)
	if err != nil {
		return LogInLink{}, unavailable("no link can be made", err)
	}
	return LogInLink{token, expires, "/login?token=" + token}, nil
}

func (a *API) createEventToken(ctx context.Context, _ *struct{}) (EventToken, error) {
	token, expires, err := a.Gate.MakeToken(ctx, principal(ctx))
	if err != nil {
		return EventToken{}, unavailable("no token can be made", err)
	}
	return EventToken{token, expires}, nil
}

// Stop ends the streams of events. The server calls it when it stops: it would wait for them.
func (a *API) Stop() {
	a.stopOnce.Do(func() { close(a.stopped) })
}

// Stopped is closed by Stop.
func (a *API) Stopped() <-chan struct{} { return a.stopped }

func (a *API) readEvents(w http.ResponseWriter, req *http.Request, in *EventsWanted) {
	p := principal(req.Context())
	filter, problem := a.eventFilter(p, in)
	if problem != nil {
		problem.Write(w)
		return
	}
	ctx, end := a.session(w, req, a.slots.events)
	if end == nil {
		return
	}
	defer end()
	ends := a.eventEnds(in)
	at, err := a.places(ctx, ends, cmp.Or(req.Header.Get("Last-Event-ID"), in.After))
	if err != nil {
		a.refuse(w, err)
		return
	}
	if p.Codes || p.Customers {
		if err := a.record(ctx, audit.Export, audit.Events, filter.String()); err != nil {
			a.refuse(w, err)
			return
		}
	}
	if !p.Clear() {
		filter.Mask = replay.NewMask(a.MaskKey, !p.Codes, !p.Customers)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-a.stopped:
			cancel(errStopping)
		case <-ctx.Done():
		}
	}()
	cursor := func(at map[int]eventlog.Position) string { return ends.Seal(a.eventPlaces(at)) }
	sink := newEventSink(w, cursor, at, strings.Contains(req.Header.Get("Accept"), eventStream))
	_, err = replay.Run(ctx, a.JS, a.Log, sink, replay.Options{Filter: filter, Follow: in.Follow == "1", Limits: eventBatch, Narrow: true, Logger: quiet(a.Logger)})
	switch cause := context.Cause(ctx); {
	case cause != nil && req.Context().Err() == nil:
		sink.end(cause.Error())
	case err != nil && req.Context().Err() == nil:
		a.Logger.Warn("a stream of events ended", "request_id", web.EnsureRequestID(w.Header()), "err", err)
		sink.end(err.Error())
	}
}

// errStopping is why streams end when the server stops.
var errStopping = errors.New("the server stops; continue at another one, or soon")

// quiet is a logger without what concerns one client.
func quiet(l *slog.Logger) *slog.Logger { return slog.New(minLevel{l.Handler()}) }

type minLevel struct{ slog.Handler }

func (h minLevel) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelError && h.Handler.Enabled(ctx, l)
}

// eventFilter reads the parameters.
func (a *API) eventFilter(p access.Principal, in *EventsWanted) (replay.Filter, *web.Problem) {
	var f replay.Filter
	for _, name := range listed(in.Types) {
		t, err := replay.ParseType(name)
		if err != nil {
			return f, invalid("query.types", err.Error())
		}
		f.Types = append(f.Types, t)
	}
	f.Campaigns = listed(in.Campaign)
	if err := f.Check(a.Log.Lanes); err != nil {
		return f, invalid("query.campaign", err.Error())
	}
	for _, name := range f.Campaigns {
		if problem := web.Check(p, access.OpReadEvents, name); problem != nil {
			return f, problem
		}
	}
	if len(f.Campaigns) == 0 {
		f.Campaigns = slices.Clone(p.Campaigns)
	}
	return f, nil
}

// listed splits a text at commas.
func listed(text string) []string {
	return strings.FieldsFunc(text, func(c rune) bool { return c == ',' })
}
