package web

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Code names a kind of problem: a refusal of the log, or an error of HTTP itself.
type Code string

// The codes that are no refusals of the log.
const (
	Malformed         Code = "malformed"          // the request cannot be read: no JSON, an unknown field, a bad header
	Unauthorized      Code = "unauthorized"       // no key, or one that is not known
	Forbidden         Code = "forbidden"          // the key may not do this
	OriginNotAllowed  Code = "origin_not_allowed" // a page of this origin may not use the public key, the console, or Basic
	NotFound          Code = "not_found"          // no such route or thing
	MethodNotAllowed  Code = "method_not_allowed" // the route has other methods
	Misdirected       Code = "misdirected"        // a host name that is not this server's
	CodeNotValid      Code = "code_not_valid"     // to public keys: every kind of wrong code
	TooLarge          Code = "too_large"          // the body is longer than the route allows
	TooSlow           Code = "too_slow"           // the body did not arrive in time
	WrongMediaType    Code = "wrong_media_type"   // Content-Type
	ConditionRequired Code = "condition_required" // If-Match is missing
	RateLimited       Code = "rate_limited"       // the key's rate
	TooManyWrongCodes Code = "too_many_wrong_codes"
	Overloaded        Code = "overloaded"      // this server does as much as it can
	Unavailable       Code = "unavailable"     // a part that is needed is away; no effect
	Stopping          Code = "stopping"        // this server stops; no effect
	UnknownOutcome    Code = "unknown_outcome" // the command may have had its effect or not
	Internal          Code = "internal"        // a defect of the server
)

// Effect is what is known of the effect of a request that was not carried out.
type Effect string

// The effects.
const (
	NoEffect      Effect = "none"    // nothing happened
	UnknownEffect Effect = "unknown" // it may have happened; retry with the same Idempotency-Key or id
)

// Kind is what all problems of a code have in common.
type Kind struct {
	Status int
	// Effect is in the body where the status alone leaves it open.
	Effect Effect
	// RetryAfter is the header Retry-After; 0 = none, and a problem may have its own.
	RetryAfter time.Duration
}

// kinds has a row for each refusal of the log and for each code above.
var kinds = map[Code]Kind{
	Code(wire.Invalid):                {Status: http.StatusUnprocessableEntity},
	Code(wire.CampaignNotFound):       {Status: http.StatusNotFound},
	Code(wire.CampaignExists):         {Status: http.StatusConflict},
	Code(wire.BatchExists):            {Status: http.StatusConflict},
	Code(wire.CampaignEnded):          {Status: http.StatusConflict},
	Code(wire.CampaignPaused):         {Status: http.StatusConflict},
	Code(wire.ClaimNotOpen):           {Status: http.StatusConflict},
	Code(wire.ClaimClosed):            {Status: http.StatusConflict},
	Code(wire.ClaimLimitReached):      {Status: http.StatusConflict},
	Code(wire.SoldOut):                {Status: http.StatusConflict},
	Code(wire.CodeNotFound):           {Status: http.StatusNotFound},
	Code(wire.NotHolder):              {Status: http.StatusForbidden},
	Code(wire.Voided):                 {Status: http.StatusConflict},
	Code(wire.Expired):                {Status: http.StatusConflict},
	Code(wire.AlreadyRedeemed):        {Status: http.StatusConflict},
	Code(wire.RedemptionLimitReached): {Status: http.StatusConflict},
	Code(wire.NotRedeemed):            {Status: http.StatusConflict},
	Code(wire.LimitReached):           {Status: http.StatusConflict},
	Code(wire.TooLate):                {Status: http.StatusConflict},
	Code(wire.RedemptionRolledBack):   {Status: http.StatusConflict},
	Code(wire.Outdated):               {Status: http.StatusConflict},
	Code(wire.IdempotencyKeyReused):   {Status: http.StatusUnprocessableEntity},
	Code(wire.VersionMismatch):        {Status: http.StatusPreconditionFailed},
	Code(wire.NotDurable):             {Status: http.StatusServiceUnavailable, Effect: NoEffect, RetryAfter: time.Second},

	Malformed:         {Status: http.StatusBadRequest},
	Unauthorized:      {Status: http.StatusUnauthorized},
	Forbidden:         {Status: http.StatusForbidden},
	OriginNotAllowed:  {Status: http.StatusForbidden},
	NotFound:          {Status: http.StatusNotFound},
	MethodNotAllowed:  {Status: http.StatusMethodNotAllowed},
	Misdirected:       {Status: http.StatusMisdirectedRequest},
	CodeNotValid:      {Status: http.StatusNotFound},
	TooLarge:          {Status: http.StatusRequestEntityTooLarge},
	TooSlow:           {Status: http.StatusRequestTimeout, Effect: NoEffect},
	WrongMediaType:    {Status: http.StatusUnsupportedMediaType},
	ConditionRequired: {Status: http.StatusPreconditionRequired},
	RateLimited:       {Status: http.StatusTooManyRequests, Effect: NoEffect, RetryAfter: time.Second},
	TooManyWrongCodes: {Status: http.StatusTooManyRequests, Effect: NoEffect, RetryAfter: time.Second},
	Overloaded:        {Status: http.StatusTooManyRequests, Effect: NoEffect, RetryAfter: time.Second},
	Unavailable:       {Status: http.StatusServiceUnavailable, Effect: NoEffect, RetryAfter: time.Second},
	Stopping:          {Status: http.StatusServiceUnavailable, Effect: NoEffect, RetryAfter: time.Second},
	UnknownOutcome:    {Status: http.StatusServiceUnavailable, Effect: UnknownEffect, RetryAfter: time.Second},
	Internal:          {Status: http.StatusInternalServerError, Effect: UnknownEffect},
}

// Codes returns all codes, in order.
func Codes() []Code { return slices.Sorted(maps.Keys(kinds)) }

// KindOf returns the row of a code. One that this version does not have, of a newer lane, is a refusal like any other: 409.
func KindOf(c Code) Kind {
	if k, ok := kinds[c]; ok {
		return k
	}
	return Kind{Status: http.StatusConflict}
}
