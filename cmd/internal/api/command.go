package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/command"
)

// commandWait is how long a command may take before its outcome is unknown.
const commandWait = 5 * time.Second

// maxIdempotencyKey is the maxLength of Change's header.
const maxIdempotencyKey = 255

// Change is what all requests that change something have in common.
type Change struct {
	IdempotencyKey string `header:"Idempotency-Key" minLength:"1" maxLength:"255" pattern:"^[ -~]+$" patternDescription:"printable ASCII" doc:"Of your choice, one for each change. A retry with the same one has no second effect and gets the first answer, or 409 where what it did is over. It is remembered per campaign, for the campaign's life. Without one the server makes an id, in Scrip-Command-Id of the answer and id of its body, which a retry sends as this header."`
}

// Changed is what all their answers have in common.
type Changed struct {
	CommandID string `header:"Scrip-Command-Id" doc:"The id of the command in the log. If the request had no Idempotency-Key, send it as that to repeat the request."`
	Replayed  string `header:"Idempotency-Replayed" doc:"true: nothing was written; the command was decided before, or what it requests is so already."`
}

// changed is the answer of a command that was carried out.
func changed(o *wire.Outcome) Changed {
	c := Changed{CommandID: o.ID}
	if o.Repeat {
		c.Replayed = "true"
	}
	return c
}

var idEncoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// Lengths of the parts of an id that the server makes, in symbols of 5 bits.
const (
	madePrefix = "m"
	madeRandom = 24 // of one of 10^9 ids of a campaign, the chance to be equal to another is 10^-18
	madeCheck  = 12
)

// checkIdempotencyKey returns the problem of a header that has no meaning. Routes of operators have no use for it: what they
// change are no commands, and a retry that seems safe would make a second key or webhook.
func (r Route) checkIdempotencyKey(given []string) *web.Problem {
	wrong := func(c web.Code, message string) *web.Problem {
		return web.New(c, "Idempotency-Key "+message).At("header.Idempotency-Key", message)
	}
	switch {
	case len(given) == 0:
		return nil
	case len(given) > 1 || given[0] == "":
		return wrong(web.Malformed, "must be given once, with a value, or not at all")
	case r.Tag == "operation" && r.Method != http.MethodGet:
		return wrong(web.Malformed, "is not for this route, which does not remember it; send the request without, and after a lost answer read what is there")
	case len(given[0]) > maxIdempotencyKey || strings.ContainsFunc(given[0], func(c rune) bool { return c < ' ' || c > '~' }):
		return wrong(web.Code(wire.Invalid), "must be 1 to 255 printable ASCII characters")
	}
	return nil
}

// commandID is the id of the command of a request: of its Idempotency-Key, and of the client that sent it, so that two clients
// that choose the same one never meet, and one whose key was rotated repeats its commands; without one it is new.
//
// An id that the server made for this client may be sent as Idempotency-Key, and is the id then: a client whose first request
// had none retries it like that. Such an id ends with a checksum of the rest and of the client, so another one's is none.
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

// parse reads the fields of a command from JSON that was validated. where is the part of the request that has them.
func parse(data []byte, t wire.CommandType, campaign, where string) (wire.Command, error) {
	var cmd wire.Command
	if err := wire.ParseCommand(data, wire.Defaults{Type: t, Campaign: campaign, NoID: true}, &cmd); err != nil {
		return cmd, web.Invalid(err, where, "", campaign)
	}
	return cmd, nil
}

// do sends the command of a request and waits for its outcome. A refusal is an error.
func (a *API) do(ctx context.Context, cmd wire.Command, change Change) (wire.Outcome, error) {
	cmd.ID = commandID(principal(ctx), change.IdempotencyKey)
	out, err := a.sendAs(ctx, cmd)
	if err == nil && out.Refused() {
		err = web.Refused(&out)
	}
	return out, err
}

// sendAs sends a command that has an id, for the principal, and waits for its outcome. The wait has no timer of its own: there is
// an answer by the command's deadline, and it has whether the command was sent.
func (a *API) sendAs(ctx context.Context, cmd wire.Command) (wire.Outcome, error) {
	w := command.NewWaiter()
	ticket, err := a.Lanes.Send(ctx, &cmd, command.Call{By: principal(ctx).By(), Deadline: time.Now().Add(commandWait), To: w})
	out, err := w.Wait(ctx, cmd.ID, ticket, err)
	if err != nil {
		return wire.Outcome{}, web.Failed(err, cmd.ID)
	}
	return out, a.shown(ctx, access.OperationOf(cmd.Type), &out, out.Repeat, cmd.N != 0)
}

// shown masks the code in an outcome that its reader may not see. The event of a change names the person who sent it; what a person
// sees without one is recorded.
func (a *API) shown(ctx context.Context, o access.Operation, out *wire.Outcome, record, byN bool) error {
	p := principal(ctx)
	if p.Hide(out); out.Code == "" || !record || !p.Person() {
		return nil
	}
	return a.unmasked(ctx, o.String(), audit.Coupon(out.Campaign, out.N, byN))
}

// Outcome is the outcome of a command, as lanes write it.
type Outcome struct{ wire.Outcome }

// OutcomeFields is its schema.
type OutcomeFields struct {
	ID            string     `json:"id,omitempty" doc:"Of the command; a validation has none."`
	Status        string     `json:"status" doc:"What was done, such as claimed, redeemed, voided, reminder_set. New ones may be added."`
	Refusal       string     `json:"refusal,omitempty" doc:"Why nothing was done. Only in answers to /v1/commands: elsewhere a refusal is a problem."`
	Message       string     `json:"message,omitempty" doc:"The same for people."`
	Campaign      string     `json:"campaign,omitempty"`
	N             uint32     `json:"n,omitempty" doc:"The number of the coupon in its campaign."`
	Code          string     `json:"code,omitempty"`
	CustomerID    string     `json:"customer_id,omitempty"`
	ExpiresAt     *time.Time `json:"expires_at,omitempty"`
	OrderID       string     `json:"order_id,omitempty"`
	RedeemedCount uint32     `json:"redeemed_count,omitempty"`
	Benefit       any        `json:"benefit,omitempty" doc:"The campaign's, as it was given."`
	Kind          string     `json:"kind,omitempty"`
	Before        string     `json:"before,omitempty" doc:"A Go duration, such as 24h0m0s."`
	DueAt         *time.Time `json:"due_at,omitempty"`
	Count         uint64     `json:"count,omitempty" doc:"Codes imported."`
	Repeat        bool       `json:"repeat,omitempty" doc:"Nothing was written: see Idempotency-Replayed."`
	CouponStatus  string     `json:"coupon_status,omitempty" doc:"Of a repeat: voided, redeemed or expired, if the coupon is that by now and status does not have it."`
}

// TransformSchema lets later versions add fields.
func (OutcomeFields) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema { return open(s) }

// Schema is described at Outcome.
func (Outcome) Schema(r huma.Registry) *huma.Schema { return schemaOf[OutcomeFields](r, "Outcome") }
