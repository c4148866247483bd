package wire

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Outcome is the answer to one command. Fields without value are left out of its JSON.
type Outcome struct {
	ID            string
	Status        string
	Campaign      string
	N             uint32
	Code          string
	CustomerID    string
	ExpiresAt     Instant
	OrderID       string
	RedeemedCount uint32
	Benefit       []byte
	Kind          string
	Before        time.Duration
	DueAt         Instant
	Count         uint64 // codes imported, coupons allotted or expired
	Batch         string // of an allotment, whose first coupon is N
	Repeat        bool   // answered before; nothing was written
	CouponStatus  string // of a repeat: what the coupon is now, if neither claimed nor what Status has it
	Refusal       Refusal
	Message       string
}

// Refused reports whether the command had no effect.
func (o *Outcome) Refused() bool { return o.Refusal != "" }

// AppendJSON appends o as one line without the newline.
func (o *Outcome) AppendJSON(dst []byte) []byte { return o.AppendWith(dst, nil) }

// AppendWith is AppendJSON with the texts of instants that the cache has; nil = none. It is written by hand for speed; a
// test holds it to the table.
func (o *Outcome) AppendWith(dst []byte, cache *LineCache) []byte {
	dst = append(dst, '{')
	start := len(dst)
	if o.ID != "" {
		dst = AppendText(append(dst, `"id":`...), o.ID)
	}
	dst = appendStringField(dst, `,"status":`, o.Status)
	dst = appendStringField(dst, `,"refusal":`, string(o.Refusal))
	dst = appendStringField(dst, `,"message":`, o.Message)
	dst = appendStringField(dst, `,"campaign":`, o.Campaign)
	dst = appendUintField(dst, `,"n":`, uint64(o.N))
	dst = cache.codeField(dst, o.Code)
	dst = appendStringField(dst, `,"customer_id":`, o.CustomerID)
	dst = cache.field(dst, `,"expires_at":`, o.ExpiresAt)
	dst = appendStringField(dst, `,"order_id":`, o.OrderID)
	dst = appendUintField(dst, `,"redeemed_count":`, uint64(o.RedeemedCount))
	dst = appendRawField(dst, `,"benefit":`, o.Benefit)
	dst = appendStringField(dst, `,"kind":`, o.Kind)
	if o.Kind != "" {
		dst = append(Period(o.Before).Append(append(dst, `,"before":"`...)), '"')
	}
	dst = cache.field(dst, `,"due_at":`, o.DueAt)
	dst = appendUintField(dst, `,"count":`, o.Count)
	dst = appendStringField(dst, `,"batch":`, o.Batch)
	if o.Repeat {
		dst = append(dst, `,"repeat":true`...)
	}
	dst = appendStringField(dst, `,"coupon_status":`, o.CouponStatus)
	dst = append(dst, '}')
	if dst[start] == ',' { // a line that had no id: the first field's comma is one too many
		dst = append(dst[:start], dst[start+1:]...)
	}
	return dst
}

// MarshalJSON makes an Outcome usable with encoding/json.
func (o Outcome) MarshalJSON() ([]byte, error) { return o.AppendJSON(nil), nil }

// UnmarshalJSON reads what AppendJSON wrote.
func (o *Outcome) UnmarshalJSON(line []byte) error {
	var err error
	*o, err = ParseOutcome(line)
	return err
}

// outcomeFields are the fields of an outcome in the order in which they are written.
var outcomeFields = list(fID, fStatus, fRefusal, fMessage, fCampaign, fN, fCode, fCustomerID, fExpiresAt, fOrderID, fRedeemedCount,
	fBenefit, fKind, fBefore, fDueAt, fCount, fBatch, fRepeat, fCouponStatus)

// at returns a pointer to the value of a field, nil for one that no outcome has.
func (o *Outcome) at(f Field) any {
	switch f {
	case fID:
		return &o.ID
	case fStatus:
		return &o.Status
	case fRefusal:
		return (*string)(&o.Refusal)
	case fMessage:
		return &o.Message
	case fCampaign:
		return &o.Campaign
	case fN:
		return &o.N
	case fCode:
		return &o.Code
	case fCustomerID:
		return &o.CustomerID
	case fExpiresAt:
		return &o.ExpiresAt
	case fOrderID:
		return &o.OrderID
	case fRedeemedCount:
		return &o.RedeemedCount
	case fBenefit:
		return &o.Benefit
	case fKind:
		return &o.Kind
	case fBefore:
		return &o.Before
	case fDueAt:
		return &o.DueAt
	case fCount:
		return &o.Count
	case fBatch:
		return &o.Batch
	case fRepeat:
		return &o.Repeat
	case fCouponStatus:
		return &o.CouponStatus
	}
	return nil
}

// ParseOutcome reads an outcome line. Unknown fields are skipped: a newer server may send more.
func ParseOutcome(line []byte) (Outcome, error) {
	var o Outcome
	ob := object{data: bytes.Clone(line)} // its texts are parts of it: one allocation, and not one for each
	for {
		key, raw, done, err := ob.next()
		if err != nil {
			return o, fmt.Errorf("the outcome %w", err)
		}
		if done {
			break
		}
		if err := readValue(o.at(fieldNamed(key)), raw); err != nil {
			return o, fmt.Errorf("the outcome's %s: %w", key, err)
		}
	}
	return o, nil
}

// Refusal is a business rejection: an outcome and no error. A refused command had no effect.
type Refusal string

// The refusals. CONTRACT.md has the order in which each command checks them.
const (
	Invalid                Refusal = "invalid"
	CampaignNotFound       Refusal = "campaign_not_found"
	CampaignExists         Refusal = "campaign_exists"
	BatchExists            Refusal = "batch_exists" // with another count
	CampaignEnded          Refusal = "campaign_ended"
	CampaignPaused         Refusal = "campaign_paused"
	ClaimNotOpen           Refusal = "claim_not_open"
	ClaimClosed            Refusal = "claim_closed"
	ClaimLimitReached      Refusal = "claim_limit_reached"
	SoldOut                Refusal = "sold_out"
	CodeNotFound           Refusal = "code_not_found"
	NotHolder              Refusal = "not_holder"
	Voided                 Refusal = "voided"
	Expired                Refusal = "expired"
	AlreadyRedeemed        Refusal = "already_redeemed"
	RedemptionLimitReached Refusal = "redemption_limit_reached"
	NotRedeemed            Refusal = "not_redeemed"
	LimitReached           Refusal = "limit_reached" // of what one customer or coupon may have; the message names it
	TooLate                Refusal = "too_late"
	RedemptionRolledBack   Refusal = "redemption_rolled_back" // the one that this id made
	Outdated               Refusal = "outdated"               // this id was accepted, and what it did is over
	IdempotencyKeyReused   Refusal = "idempotency_key_reused"
	VersionMismatch        Refusal = "version_mismatch" // the campaign was changed since the version in if_version
	NotDurable             Refusal = "not_durable"
)

// allRefusals are the refusals above.
var allRefusals = [...]Refusal{
	Invalid, CampaignNotFound, CampaignExists, BatchExists, CampaignEnded, CampaignPaused, ClaimNotOpen, ClaimClosed, ClaimLimitReached, SoldOut, CodeNotFound,
	NotHolder, Voided, Expired, AlreadyRedeemed, RedemptionLimitReached, NotRedeemed, LimitReached, TooLate, RedemptionRolledBack, Outdated,
	IdempotencyKeyReused, VersionMismatch, NotDurable,
}

// refusalNames are the same as texts.
var refusalNames = func() (all []string) {
	for r := range Refusals() {
		all = append(all, string(r))
	}
	return all
}()

// Refusals returns the refusals.
func Refusals() iter.Seq[Refusal] { return slices.Values(allRefusals[:]) }

// InvalidError is what is wrong with a line, and how to correct it.
type InvalidError struct {
	// Field is one that lines can have; "" = the line itself.
	Field string
	// Message is a sentence of scrip: it has names and limits of its own, and nothing of the line.
	Message string
	// Got is what the line has, where that helps its sender; without Field it is the name of a field that no line has.
	// It may be a code.
	Got string
	// Malformed is true where the line has no valid form: no JSON, or a field that is unknown, missing or given twice. It is
	// false where the value of a field is out of bounds.
	Malformed bool
}

// Error is for the sender of the line.
func (e *InvalidError) Error() string {
	switch {
	case e.Got == "":
		return e.Reason()
	case e.Field == "":
		return Shorten(e.Got, 64) + ": " + e.Message
	}
	return e.Reason() + ": " + strconv.Quote(Shorten(e.Got, 64))
}

// Reason is for people who may see neither codes nor customers: it has nothing of the line.
func (e *InvalidError) Reason() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}

// Reason is that of an InvalidError, and of another error a sentence without its text.
func Reason(err error) string {
	var invalid *InvalidError
	if errors.As(err, &invalid) {
		return invalid.Reason()
	}
	return "the line is not valid"
}

// got adds what the line has.
func (e *InvalidError) got(text string) *InvalidError {
	e.Got = strings.Clone(text) // a view of the line
	return e
}

// malformedf is Invalidf for a line without valid form.
func malformedf(fieldName, format string, args ...any) *InvalidError {
	e := Invalidf(fieldName, format, args...)
	e.Malformed = true
	return e
}

func Invalidf(fieldName, format string, args ...any) *InvalidError {
	if len(args) > 0 {
		format = fmt.Sprintf(format, args...)
	}
	return &InvalidError{Field: fieldName, Message: format}
}
