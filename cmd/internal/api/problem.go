package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/command"
)

// problem turns the error of a handler into the answer.
func (a *API) problem(err error) *web.Problem {
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
	a.Logger.Error("a request failed", "err", err)
	return web.New(web.Internal, "the server has a defect; its log has the details")
}

// unavailable is the problem of a part that is away, while the rest works.
func unavailable(what string, err error) *web.Problem {
	return web.New(web.Unavailable, what+": "+err.Error()+"; retry, see GET /v1/status")
}

// refuse answers with an error.
func (a *API) refuse(w http.ResponseWriter, err error) { a.problem(err).Write(w) }
