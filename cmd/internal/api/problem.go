package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// queryWait is how long lanes and tables may take to answer. During a takeover a lane is without an owner for some seconds.
const queryWait = 5 * time.Second

// problem turns the error of a handler into the answer.
func (a *API) problem(w http.ResponseWriter, err error) *web.Problem {
	var p *web.Problem
	if errors.As(err, &p) {
		return p
	}
	var refused *client.RefusedError
	var unknown *command.UnknownError
	var unsent *command.NotSentError
	switch {
	case errors.As(err, &refused):
		return web.Refused(&refused.Outcome)
	case errors.As(err, &unknown):
		return web.Failed(err, unknown.ID)
	case errors.As(err, &unsent):
		return web.Failed(err, unsent.ID)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return web.New(web.Unavailable, err.Error())
	}
	a.Logger.Error("a request failed", "request_id", web.EnsureRequestID(w.Header()), "err", err)
	return web.New(web.Internal, "the server has a defect; its log has the details")
}

// invalid is the problem of what is at a location, such as query.limit.
func invalid(location, message string) *web.Problem {
	detail := message
	if _, field, one := strings.Cut(location, "."); one {
		detail = field + ": " + message
	}
	return web.New(web.Code(wire.Invalid), detail).At(location, message)
}

// unavailable is the problem of a part that is away, while the rest works, or that refuses to store more.
func unavailable(what string, err error) *web.Problem {
	if no := ops.RefusalOf(err); no.Code == ops.Overloaded {
		return web.New(web.Overloaded, no.Message)
	}
	return web.New(web.Unavailable, what+": "+err.Error()+"; retry, see GET /v1/status")
}

// refuse answers with an error.
func (a *API) refuse(w http.ResponseWriter, err error) { a.problem(w, err).Write(w) }

// refused is the problem of a refusal.
func (a *API) refused(w http.ResponseWriter, err error, where places) *web.Problem {
	var no *ops.Refusal
	if !errors.As(err, &no) {
		return a.problem(w, err)
	}
	problem := web.New(web.Code(no.Code), no.Message)
	switch {
	case no.Field != "":
		return problem.At(cmp.Or(where[no.Field], "body."+no.Field), no.Message)
	case no.Code == wire.Invalid:
		return problem.At("body", no.Message)
	}
	return problem
}

// isRefused reports whether a query was refused for that reason.
func isRefused(err error, r wire.Refusal) bool {
	var refused *client.RefusedError
	return errors.As(err, &refused) && refused.Outcome.Refusal == r
}

// unanswered is the problem of a query without an answer; a refusal stays one.
func unanswered(what string, err error) error {
	var refused *client.RefusedError
	if errors.As(err, &refused) {
		return web.Refused(&refused.Outcome)
	}
	return unavailable(what+" cannot be read", err)
}
