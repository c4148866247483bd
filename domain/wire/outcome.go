package wire

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Outcome statuses.
const (
	StatusClaimed           = "claimed"
	StatusRedeemed          = "redeemed"
	StatusRolledBack        = "rolled_back"
	StatusVoided            = "voided"
	StatusExtended          = "extended"
	StatusReminderSet       = "reminder_set"
	StatusReminderCancelled = "reminder_cancelled"
	StatusCreated           = "created"
	StatusUpdated           = "updated"
	StatusPaused            = "paused"
	StatusResumed           = "resumed"
	StatusEnded             = "ended"
	StatusImported          = "imported"
	StatusExpired           = "expired"
	StatusRefused           = "refused"
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
	Count         uint64 // codes imported, coupons expired
	Repeat        bool   // answered before; nothing was written
	Refusal       Refusal
	Message       string
}

// Refused reports whether the command had no effect.
func (o *Outcome) Refused() bool { return o.Refusal != "" }

// AppendJSON appends o as one line without the newline.
func (o *Outcome) AppendJSON(dst []byte) []byte { return o.AppendWith(dst, nil) }

func (o *Outcome) AppendWith(dst []byte, st *LineCache) []byte {
	dst = append(dst, '{')
	begin := len(dst)
	if o.ID != "" {
		dst = AppendText(append(dst, `"id":`...), o.ID)
	}
	dst = appendStringField(dst, `,"status":`, o.Status)
	dst = appendStringField(dst, `,"refusal":`, string(o.Refusal))
	dst = appendStringField(dst, `,"message":`, o.Message)
	dst = appendStringField(dst, `,"campaign":`, o.Campaign)
	dst = appendUintField(dst, `,"n":`, uint64(o.N))
	dst = st.codeField(dst, o.Code)
	dst = appendStringField(dst, `,"customer_id":`, o.CustomerID)
	dst = st.field(dst, `,"expires_at":`, o.ExpiresAt)
	dst = appendStringField(dst, `,"order_id":`, o.OrderID)
	dst = appendUintField(dst, `,"redeemed_count":`, uint64(o.RedeemedCount))
	dst = appendRawField(dst, `,"benefit":`, o.Benefit)
	dst = appendStringField(dst, `,"kind":`, o.Kind)
	if o.Kind != "" {
		dst = AppendText(append(dst, `,"before":`...), o.Before.String())
	}
	dst = st.field(dst, `,"due_at":`, o.DueAt)
	dst = appendUintField(dst, `,"count":`, o.Count)
	if o.Repeat {
		dst = append(dst, `,"repeat":true`...)
	}
	dst = append(dst, '}')
	if dst[begin] == ',' { // a line that had no id: the first field's comma is one too many
		dst = append(dst[:begin], dst[begin+1:]...)
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

// ParseOutcome reads an outcome line. Unknown fields are skipped: a newer server may say more.
func ParseOutcome(line []byte) (Outcome, error) {
	var o Outcome
	ob := object{data: line}
	for {
		key, raw, done, err := ob.next()
		if err != nil {
			return o, fmt.Errorf("the outcome %w", err)
		}
		if done {
			return o, nil
		}
		text := func(into *string) {
			var s string
			s, err = unquote(raw)
			*into = strings.Clone(s)
		}
		number := func(into *uint64) { *into, err = strconv.ParseUint(string(raw), 10, 64) }
		instant := func(into *Instant) {
			var s string
			if text(&s); err == nil {
				*into, err = parseStamp([]byte(s))
			}
		}
		var s string
		var n uint64
		switch string(key) {
		case "id":
			text(&o.ID)
		case "status":
			text(&o.Status)
		case "refusal":
			text(&s)
			o.Refusal = Refusal(s)
		case "message":
			text(&o.Message)
		case "campaign":
			text(&o.Campaign)
		case "n":
			number(&n)
			o.N = uint32(n)
		case "code":
			text(&o.Code)
		case "customer_id":
			text(&o.CustomerID)
		case "expires_at":
			instant(&o.ExpiresAt)
		case "order_id":
			text(&o.OrderID)
		case "redeemed_count":
			number(&n)
			o.RedeemedCount = uint32(n)
		case "benefit":
			o.Benefit = append([]byte(nil), raw...)
		case "kind":
			text(&o.Kind)
		case "before":
			if text(&s); err == nil {
				o.Before, err = time.ParseDuration(s)
			}
		case "due_at":
			instant(&o.DueAt)
		case "count":
			number(&o.Count)
		case "repeat":
			o.Repeat = string(raw) == "true"
		}
		if err != nil {
			return o, fmt.Errorf("the outcome's %s: %w", key, err)
		}
	}
}
