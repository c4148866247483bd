package wire

import "fmt"

// Refusal is a business "no": an answer, not an error. Refused always means "no effect".
type Refusal string

// The refusals. CONTRACT.md has the order in which each command checks them.
const (
	Invalid                Refusal = "invalid"
	CampaignNotFound       Refusal = "campaign_not_found"
	CampaignExists         Refusal = "campaign_exists"
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
	IdempotencyKeyReused   Refusal = "idempotency_key_reused"
	NotDurable             Refusal = "not_durable"
)

// InvalidError says what is wrong with a line: the field (empty when it is the line itself) and how to mend it.
type InvalidError struct {
	Field   string
	Message string
}

func (e *InvalidError) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}

func Invalidf(fieldName, format string, args ...any) *InvalidError {
	if len(args) > 0 {
		format = fmt.Sprintf(format, args...)
	}
	return &InvalidError{Field: fieldName, Message: format}
}
