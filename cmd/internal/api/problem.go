package api

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/command"
)

// codes are those of the errors that huma makes itself, by status.
var codes = map[int]web.Code{
	http.StatusBadRequest:            web.Malformed,
	http.StatusNotAcceptable:         web.NotAcceptable,
	http.StatusRequestTimeout:        web.TooSlow,
	http.StatusRequestEntityTooLarge: web.TooLarge,
	http.StatusUnsupportedMediaType:  web.WrongMediaType,
	http.StatusUnprocessableEntity:   web.Code(wire.Invalid),
}

// unreadable are the texts of huma's errors about a part of the request that the route does not have, or that is missing. Then
// the request has no valid form, or means something else than the server would do: 400.
var unreadable = []string{"unexpected property", "unknown query parameter", "expected required property", "parameter is missing"}

// brokenBody is huma's text of a body that ends too early or is badly framed, which it takes for an error of the server.
const brokenBody = "cannot read request body"

// newError is huma.NewError: an error of reading or validating a request.
func newError(status int, message string, errs ...error) huma.StatusError {
	code, known := codes[status]
	switch {
	case message == brokenBody:
		code = web.Malformed
	case !known:
		code = web.Internal
	}
	for _, err := range errs {
		for _, text := range unreadable {
			if err != nil && code == web.Code(wire.Invalid) && strings.Contains(err.Error(), text) {
				code = web.Malformed
			}
		}
	}
	if code == web.Internal {
		message = "the server has a defect; its log has the details"
	}
	p := web.New(code, message)
	for i, err := range errs {
		if err == nil || code == web.Internal {
			continue
		}
		location, text := "body", err.Error()
		var detailer huma.ErrorDetailer
		if errors.As(err, &detailer) {
			d := detailer.ErrorDetail()
			text = d.Message
			if d.Location != "" {
				location = d.Location
			}
		}
		if i == 0 {
			p.Detail = location + ": " + text
		}
		p.At(location, text)
	}
	return p
}

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
