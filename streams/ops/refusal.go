package ops

import (
	"errors"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/once"
	"github.com/seed-4a2410e3/scrip/streams/registry"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/share"
	"github.com/seed-4a2410e3/scrip/streams/webhook"
)

// The codes of refusals, beside those of lanes. HTTP has a status for each.
const (
	Malformed      wire.Refusal = "malformed"       // the request cannot be read, or has an unknown field
	Forbidden      wire.Refusal = "forbidden"       // the caller may not do this
	NotFound       wire.Refusal = "not_found"       // there is no such thing
	NameTaken      wire.Refusal = "name_taken"      // of a key
	KeyEnded       wire.Refusal = "key_ended"       // it was revoked or replaced before
	NotRetriable   wire.Refusal = "not_retriable"   // a dead letter that cannot be sent again
	AlreadyRetried wire.Refusal = "already_retried" // a dead letter whose retry cannot be undone
	Busy           wire.Refusal = "busy"            // a job of this kind runs already
	Overloaded     wire.Refusal = "overloaded"      // a share is used, or there is no room for more; nothing was done
	Unavailable    wire.Refusal = "unavailable"     // a part that is needed is away; nothing was done
	UnknownOutcome wire.Refusal = "unknown_outcome" // it may have been done or not
)

// Codes are they.
var Codes = []wire.Refusal{Malformed, Forbidden, NotFound, NameTaken, KeyEnded, NotRetriable, AlreadyRetried, Busy, Overloaded, Unavailable, UnknownOutcome}

// Refusal is the error of each action: the code, the field of the request that is wrong, "" = none in particular, and a text
// that names what to do.
type Refusal struct {
	Code    wire.Refusal
	Field   string
	Message string
}

func (r *Refusal) Error() string { return r.Message }

// invalid is the refusal of a field's value.
func invalid(field, message string) *Refusal {
	return &Refusal{Code: wire.Invalid, Field: field, Message: field + ": " + message}
}

// kinds are the codes of errors of the packages below.
var kinds = []struct {
	err  error
	code wire.Refusal
}{
	{access.ErrForbidden, Forbidden}, {webhook.ErrForbidden, Forbidden},
	{access.ErrNoSuchKey, NotFound}, {webhook.ErrNotFound, NotFound}, {ErrNoJob, NotFound},
	{access.ErrNameTaken, NameTaken}, {access.ErrEnded, KeyEnded}, {webhook.ErrChanged, wire.VersionMismatch}, {settings.ErrChanged, wire.VersionMismatch},
	{access.ErrInvalid, wire.Invalid}, {once.ErrReused, wire.IdempotencyKeyReused}, {once.ErrCutOff, UnknownOutcome},
	{registry.ErrUnknown, UnknownOutcome}, {registry.ErrUnrecorded, UnknownOutcome},
}

// RefusalOf is the refusal of an error. One without a kind is of a part that is away: nothing was done.
func RefusalOf(err error) *Refusal {
	var r *Refusal
	if errors.As(err, &r) {
		return r
	}
	code := Unavailable
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return &Refusal{Code: k.code, Message: err.Error()}
		}
	}
	var notValid *registry.InvalidError
	var unknown *command.UnknownError
	var usedUp *share.UsedUp
	switch {
	case errors.As(err, &usedUp), natsx.IsFull(err):
		code = Overloaded
	case errors.As(err, &notValid):
		code = wire.Invalid
	case errors.As(err, &unknown):
		code = UnknownOutcome
	}
	return &Refusal{Code: code, Message: err.Error()}
}
