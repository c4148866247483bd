package wire

import (
	"time"
)

// EventType says what an event tells.
type EventType uint8

// The events.
const (
	NoEvent EventType = iota
	CampaignCreated
	CampaignUpdated
	CampaignPausedEvent
	CampaignResumed
	CampaignEndedEvent
	CampaignSoldOut
	CodesImported
	CouponClaimed
	CouponRedeemed
	CouponRolledBack
	CouponVoided
	CouponExtended
	CouponsExpired
	ReminderSet
	ReminderCancelled
	RemindersDue
	CommandsRefused
	CommandRejected
	ReminderDue
	numEvents
)

var eventNames = [numEvents]string{"", "campaign.created", "campaign.updated", "campaign.paused", "campaign.resumed",
	"campaign.ended", "campaign.sold_out", "codes.imported", "coupon.claimed", "coupon.redeemed", "coupon.rolled_back",
	"coupon.voided", "coupon.extended", "coupons.expired", "reminder.set", "reminder.cancelled", "reminders.due",
	"commands.refused", "command.rejected", "reminder.due"}

func (t EventType) String() string { return eventNames[t] }

// eventNamed is a switch for the reason that fieldNamed is one.
func eventNamed(name []byte) EventType {
	switch string(name) {
	case "coupon.claimed":
		return CouponClaimed
	case "coupon.redeemed":
		return CouponRedeemed
	case "coupon.rolled_back":
		return CouponRolledBack
	case "coupon.voided":
		return CouponVoided
	case "coupon.extended":
		return CouponExtended
	case "coupons.expired":
		return CouponsExpired
	case "campaign.created":
		return CampaignCreated
	case "campaign.updated":
		return CampaignUpdated
	case "campaign.paused":
		return CampaignPausedEvent
	case "campaign.resumed":
		return CampaignResumed
	case "campaign.ended":
		return CampaignEndedEvent
	case "campaign.sold_out":
		return CampaignSoldOut
	case "codes.imported":
		return CodesImported
	case "reminder.set":
		return ReminderSet
	case "reminder.cancelled":
		return ReminderCancelled
	case "reminders.due":
		return RemindersDue
	case "commands.refused":
		return CommandsRefused
	case "command.rejected":
		return CommandRejected
	case "reminder.due":
		return ReminderDue
	}
	return NoEvent
}

// RefusalCount is one entry of a commands.refused event.
type RefusalCount struct {
	Refusal Refusal
	Count   uint64
}

// Event is one event line. Which fields count depends on Type; the others are zero.
type Event struct {
	Type     EventType
	Campaign string
	At       Instant
	ID       string // of the command that caused it

	Number   uint32 // campaign number
	Settings Settings
	Codes    []string // imported

	N             uint32
	Code          string
	CustomerID    string
	Attributes    []byte
	ExpiresAt     Instant // the coupon's own; 0 = inherits
	OrderID       string
	RedeemedCount uint32
	Reason        string // of a void or a rejection
	Status        string // after a roll back, void or extend: claimed, redeemed, expired or voided

	Through Instant // expired
	Count   uint64

	R        uint64 // reminder subscription, rising per campaign
	Kind     string
	Before   time.Duration
	DueAt    Instant
	FromR    uint64
	ThroughR uint64
	Fired    uint64
	Dropped  uint64
	Passed   Instant // of reminders.due: only those that announce an instant up to it; 0 = all in the range
	Refused  []RefusalCount
	Sample   []string // of commands.refused without campaign: some names of campaigns that do not exist
	Sequence uint64   // of the rejected command message
	Line     uint32   // within it, from 1; 0 = the whole message
	Payload  string   // what was rejected, capped

	// Of a command.rejected that stands for Count bad lines, 0 = for one. They begin with line Line of message Sequence.
	LastSequence uint64 // message of the last of them
	Bytes        uint64 // how long they are together
}

// Restorable says of a reminder.cancelled event that a redemption caused it, so that its rollback sets the reminder again.
func (e *Event) Restorable() bool { return e.CustomerID == "" && e.N != 0 }

// DueSet names pending subscriptions by what they have in common: the kind, the instant at which they fall due, and the
// numbers FromR to ThroughR. With Passed they are only those that announce that instant or an earlier one.
type DueSet struct {
	Kind            string
	DueAt           Instant
	FromR, ThroughR uint64
	Passed          Instant // 0 = whatever they announce
}

// DueSet is what a reminders.due event fires or drops.
func (e *Event) DueSet() DueSet {
	return DueSet{Kind: e.Kind, DueAt: e.DueAt, FromR: e.FromR, ThroughR: e.ThroughR, Passed: e.Passed}
}

// AppendJSON appends e as one line without the newline.
func (e *Event) AppendJSON(dst []byte) []byte { return e.AppendWith(dst, nil) }

func (e *Event) AppendWith(dst []byte, st *LineCache) []byte {
	dst = append(dst, `{"type":"`...)
	dst = append(dst, e.Type.String()...)
	dst = append(dst, '"')
	dst = appendStringField(dst, `,"campaign":`, e.Campaign)
	dst = st.field(dst, `,"at":`, e.At)
	dst = appendStringField(dst, `,"id":`, e.ID)
	switch e.Type {
	case CampaignCreated, CampaignUpdated:
		dst = appendNumber(append(dst, `,"number":`...), uint64(e.Number))
		dst = e.Settings.Append(dst)
	case CodesImported:
		dst = appendTextsField(dst, `,"codes":`, e.Codes)
	case CouponClaimed, CouponRedeemed, CouponRolledBack, CouponVoided, CouponExtended:
		dst = appendUintField(dst, `,"n":`, uint64(e.N))
		dst = st.codeField(dst, e.Code)
		dst = appendStringField(dst, `,"customer_id":`, e.CustomerID)
		dst = appendRawField(dst, `,"attributes":`, e.Attributes)
		dst = st.field(dst, `,"expires_at":`, e.ExpiresAt)
		dst = appendStringField(dst, `,"order_id":`, e.OrderID)
		if e.Type == CouponRedeemed || e.Type == CouponRolledBack {
			dst = appendNumber(append(dst, `,"redeemed_count":`...), uint64(e.RedeemedCount))
		}
		dst = appendStringField(dst, `,"reason":`, e.Reason)
		dst = appendStringField(dst, `,"status":`, e.Status)
	case CouponsExpired:
		dst = st.field(dst, `,"through":`, e.Through)
		dst = appendNumber(append(dst, `,"count":`...), e.Count)
	case ReminderSet, ReminderCancelled:
		dst = appendUintField(dst, `,"r":`, e.R)
		dst = appendStringField(dst, `,"customer_id":`, e.CustomerID)
		dst = appendStringField(dst, `,"kind":`, e.Kind)
		if e.Kind != "" {
			dst = AppendText(append(dst, `,"before":`...), e.Before.String())
		}
		dst = st.field(dst, `,"due_at":`, e.DueAt)
		dst = appendUintField(dst, `,"n":`, uint64(e.N))
	case RemindersDue:
		dst = appendStringField(dst, `,"kind":`, e.Kind)
		dst = st.field(dst, `,"due_at":`, e.DueAt)
		dst = appendNumber(append(dst, `,"from_r":`...), e.FromR)
		dst = appendNumber(append(dst, `,"through_r":`...), e.ThroughR)
		dst = appendNumber(append(dst, `,"fired":`...), e.Fired)
		dst = appendNumber(append(dst, `,"dropped":`...), e.Dropped)
		dst = st.field(dst, `,"passed":`, e.Passed)
	case CommandsRefused:
		dst = append(append(dst, `,"counts":`...), '{')
		for i, r := range e.Refused {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(AppendText(dst, string(r.Refusal)), ':')
			dst = appendNumber(dst, r.Count)
		}
		dst = append(dst, '}')
		dst = appendTextsField(dst, `,"sample":`, e.Sample)
	case CommandRejected:
		dst = appendUintField(dst, `,"sequence":`, e.Sequence)
		dst = appendUintField(dst, `,"line":`, uint64(e.Line))
		dst = appendUintField(dst, `,"count":`, e.Count)
		dst = appendUintField(dst, `,"last_sequence":`, e.LastSequence)
		dst = appendUintField(dst, `,"bytes":`, e.Bytes)
		dst = appendStringField(dst, `,"reason":`, e.Reason)
		dst = appendStringField(dst, `,"payload":`, e.Payload)
	case ReminderDue:
		dst = appendStringField(dst, `,"kind":`, e.Kind)
		dst = st.field(dst, `,"due_at":`, e.DueAt)
		dst = appendStringField(dst, `,"customer_id":`, e.CustomerID)
	}
	return append(dst, '}')
}
