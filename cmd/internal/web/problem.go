package web

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/command"
)

// ProblemType is the Content-Type of problems.
const ProblemType = "application/problem+json"

// Problem is an error answer (RFC 9457). Its JSON has the fields of the refused outcome beside those of the RFC.
type Problem struct {
	Type     string       `json:"type"`               // always about:blank: code has the kind
	Title    string       `json:"title"`              // of the status
	Status   int          `json:"status"`             // of HTTP
	Code     Code         `json:"code"`               // a refusal, or an error of HTTP
	Detail   string       `json:"detail,omitempty"`   // for people
	Effect   Effect       `json:"effect,omitempty"`   // none or unknown; absent = none, as the status has it
	ID       string       `json:"id,omitempty"`       // of the command
	Campaign string       `json:"campaign,omitempty"` // of the command
	Errors   []FieldError `json:"errors,omitempty"`   // what is wrong in the request
	// RequestID is the header X-Request-Id of the answer.
	RequestID string `json:"request_id,omitempty"`

	headers http.Header
}

// FieldError is what is wrong with one part of a request.
type FieldError struct {
	Location string `json:"location"` // such as body.customer_id, header.Idempotency-Key, query.limit
	Message  string `json:"message"`
}

// New returns a problem of a code. detail is a sentence for people; it names what to do.
func New(c Code, detail string) *Problem {
	k := KindOf(c)
	p := &Problem{Type: "about:blank", Title: http.StatusText(k.Status), Status: k.Status, Code: c, Detail: detail, Effect: k.Effect}
	if k.RetryAfter > 0 {
		p.After(k.RetryAfter)
	}
	return p
}

// At adds what is wrong at a location.
func (p *Problem) At(location, message string) *Problem {
	p.Errors = append(p.Errors, FieldError{location, message})
	return p
}

// After sets Retry-After, rounded up to whole seconds.
func (p *Problem) After(wait time.Duration) *Problem {
	seconds := max(1, int64((wait+time.Second-1)/time.Second))
	return p.header("Retry-After", strconv.FormatInt(seconds, 10))
}

func (p *Problem) header(name, value string) *Problem {
	if p.headers == nil {
		p.headers = make(http.Header, 2)
	}
	p.headers.Set(name, value)
	return p
}

// Refused returns the problem of a refused outcome.
func Refused(o *wire.Outcome) *Problem {
	p := New(Code(o.Refusal), o.Message)
	p.ID, p.Campaign = o.ID, o.Campaign
	return p
}

// Invalid returns the problem of a command that ParseCommand refused. where is the part of the request that has its fields,
// such as body.
func Invalid(err error, where, id, campaign string) *Problem {
	code, location := Malformed, where
	var invalid *wire.InvalidError
	if errors.As(err, &invalid) {
		if !invalid.Malformed {
			code = Code(wire.Invalid)
		}
		if name := cmp.Or(invalid.Field, wire.Shorten(invalid.Got, 64)); name != "" {
			location += "." + name
		}
		p := New(code, err.Error()).At(location, invalid.Message)
		p.ID, p.Campaign = id, campaign
		return p
	}
	return New(code, err.Error()).At(location, err.Error())
}

// Failed returns the problem of a command without an outcome: err is a *command.UnknownError or *command.NotSentError.
func Failed(err error, id string) *Problem {
	var p *Problem
	var notSent *command.NotSentError
	switch {
	case errors.Is(err, command.ErrFull):
		p = New(Overloaded, "this server has as many commands in flight as it can; retry")
	case errors.As(err, &notSent) && notSent.Reached:
		p = New(Code(wire.NotDurable), err.Error())
	case errors.As(err, &notSent):
		p = New(Unavailable, err.Error())
	default:
		p = New(UnknownOutcome, err.Error())
	}
	p.ID = id
	return p
}

// Error makes a Problem an error.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return string(p.Code)
	}
	return string(p.Code) + ": " + p.Detail
}

// body is the JSON of the problem.
func (p *Problem) body() []byte {
	body, _ := json.Marshal(p) // texts and numbers: it never fails
	return append(body, '\n')
}

// Write sends the problem. Nothing may have been written to w before.
func (p *Problem) Write(w http.ResponseWriter) {
	h := w.Header()
	for name, values := range p.headers {
		h[name] = values
	}
	h["Content-Type"] = problemType
	h["Cache-Control"] = noStore
	if h[RequestID] == nil && p.ID != "" {
		h[RequestID] = []string{p.ID}
	}
	p.RequestID = EnsureRequestID(h)
	body := p.body()
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the client may have closed the connection
}

// Values of headers that are the same in every answer: shared slices cost nothing per request, and are only read.
var (
	problemType = []string{ProblemType}
	noStore     = []string{"no-store"}
)
