package wire

import (
	"bytes"
	"iter"
	"slices"
	"time"
)

// EventType is what an event records.
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
	CouponsAllotted
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

// Subject is what an event is about.
type Subject uint8

// The subjects.
const (
	AboutCampaign Subject = iota + 1 // the campaign as a whole, or many of its coupons or reminders at once
	AboutCoupon                      // coupon N of the campaign
	AboutReminder                    // reminder R of the campaign
	AboutLane                        // commands that had no effect
)

// EventSpec is a row of the table of events.
type EventSpec struct {
	Name  string
	About Subject
	// Command is the command that the event accepts: at most one event of a campaign does so under the same id, unless
	// the command is the scheduler's. NoCommand: it follows from another event, or from commands without effect.
	Command CommandType
	// Change names what happened to a coupon or a reminder, as histories show it; "-" for what they leave out.
	Change string
	// Campaign: histories of campaigns have it.
	Campaign bool
	// Due is whether it may change what is due in a campaign, or when. The scheduler need not parse the others.
	Due      bool
	Fields   []Field // after type, campaign, at and id; by and request_id come last
	Optional []Field // those that not every such event has
}

var events = [numEvents]EventSpec{
	CampaignCreated: {Name: "campaign.created", About: AboutCampaign, Campaign: true, Command: CreateCampaign, Change: "-", Due: true,
		Fields: append(list(fNumber|always), settingFields...), Optional: unsetFields},
	CampaignUpdated: {Name: "campaign.updated", About: AboutCampaign, Campaign: true, Command: UpdateCampaign, Change: "-", Due: true,
		Fields: append(list(fNumber|always), settingFields...), Optional: unsetFields},
	CampaignPausedEvent: {Name: "campaign.paused", About: AboutCampaign, Campaign: true, Command: PauseCampaign, Change: "-"},
	CampaignResumed:     {Name: "campaign.resumed", About: AboutCampaign, Campaign: true, Command: ResumeCampaign, Change: "-"},
	CampaignEndedEvent:  {Name: "campaign.ended", About: AboutCampaign, Campaign: true, Command: EndCampaign, Change: "-"},
	CampaignSoldOut:     {Name: "campaign.sold_out", About: AboutCampaign, Campaign: true, Change: "-"},
	CodesImported: {Name: "codes.imported", About: AboutCampaign, Command: ImportCodes, Change: "-",
		Fields: list(fCodeList)},
	CouponsAllotted: {Name: "coupons.allotted", About: AboutCampaign, Campaign: true, Command: Allot, Change: "allotted", Due: true,
		Fields: list(fFromN, fThroughN, fBatch, fExpiresAt), Optional: list(fExpiresAt)},
	CouponClaimed: {Name: "coupon.claimed", About: AboutCoupon, Command: Claim, Change: "claimed", Due: true,
		Fields: list(fN, fReplaces, fCode, fCustomerID, fAttributes, fExpiresAt), Optional: list(fReplaces, fAttributes, fExpiresAt)},
	CouponRedeemed: {Name: "coupon.redeemed", About: AboutCoupon, Command: Redeem, Change: "redeemed",
		Fields: list(fN, fCode, fCustomerID, fOrderID, fRedeemedCount|always, fByN), Optional: list(fCustomerID, fByN)},
	CouponRolledBack: {Name: "coupon.rolled_back", About: AboutCoupon, Command: Rollback, Change: "rolled_back",
		Fields: list(fN, fCode, fOrderID, fRedeemedCount|always, fStatus, fByN), Optional: list(fByN)},
	CouponVoided: {Name: "coupon.voided", About: AboutCoupon, Command: Void, Change: "voided",
		Fields: list(fN, fCode, fReason, fStatus, fByN), Optional: list(fReason, fByN)},
	CouponExtended: {Name: "coupon.extended", About: AboutCoupon, Command: Extend, Change: "extended", Due: true,
		Fields: list(fN, fCode, fExpiresAt, fStatus, fByN), Optional: list(fByN)},
	CouponsExpired: {Name: "coupons.expired", About: AboutCampaign, Command: Expire, Change: "expired", Due: true,
		Fields: list(fThrough, fCount|always)},
	ReminderSet: {Name: "reminder.set", About: AboutReminder, Command: Remind, Change: "reminder_set", Due: true,
		Fields: list(fR, fCustomerID, fKind, fBefore, fDueAt, fN, fZone), Optional: list(fCustomerID, fDueAt, fN, fZone)},
	ReminderCancelled: {Name: "reminder.cancelled", About: AboutReminder, Command: Unremind, Change: "reminder_cancelled", Due: true,
		Fields: list(fR, fCustomerID, fKind, fBefore, fN), Optional: list(fCustomerID, fKind, fBefore, fN)},
	RemindersDue: {Name: "reminders.due", About: AboutCampaign, Command: RemindDue, Change: "reminder_fired", Due: true,
		Fields: list(fKind, fDueAt, fFromR|always, fThroughR|always, fFired|always, fDropped|always, fPassed), Optional: list(fPassed)},
	CommandsRefused: {Name: "commands.refused", About: AboutLane, Change: "-",
		Fields: list(fCounts|always, fSample), Optional: list(fSample)},
	CommandRejected: {Name: "command.rejected", About: AboutLane, Change: "-",
		Fields: list(fSequence, fLine, fCount, fLastSequence, fBytes, fReason, fPayload), Optional: list(fLine, fCount, fLastSequence, fBytes, fPayload)},
	// Not on event streams but on those of fired reminders.
	ReminderDue: {Name: "reminder.due", About: AboutCampaign, Change: "-",
		Fields: list(fKind, fBefore, fDueAt, fZone, fMerged, fWithheld, fCustomerIDs, fRList), Optional: list(fZone, fMerged, fWithheld)},
}

// Events returns the events of event streams: all but reminder.due.
func Events() iter.Seq[EventType] {
	return func(yield func(EventType) bool) {
		for t := NoEvent + 1; t < ReminderDue; t++ {
			if !yield(t) {
				return
			}
		}
	}
}

// Spec returns the row of t in the table of events.
func (t EventType) Spec() *EventSpec { return &events[t] }

func (t EventType) String() string { return events[t].Name }

// NamesCustomers reports whether events of type t may have the id of a customer.
func (t EventType) NamesCustomers() bool {
	return slices.ContainsFunc(events[t].Fields, func(f Field) bool { return fieldSpecs[f&^always].secret == SecretCustomer })
}

// ChangesCoupon reports whether an event of type t changes coupon N, which an earlier event claimed.
func (t EventType) ChangesCoupon() bool { return events[t].About == AboutCoupon && t != CouponClaimed }

var (
	typeKey      = []byte(`{"type":"`)
	expiresAtKey = []byte(`"expires_at":`)
)

// MayChangeDue reports whether an event line may change what is due in a campaign, or when. It decides by the beginning
// that AppendJSON writes, without parsing the line: most lines of a busy lane change nothing. A line that is written in
// another way may change it.
func MayChangeDue(line []byte) bool {
	name, ok := bytes.CutPrefix(line, typeKey)
	if !ok {
		return true
	}
	end := bytes.IndexByte(name, '"')
	if end < 0 {
		return true
	}
	switch t := EventNamed(name[:end]); t {
	case NoEvent:
		return true // the parser has to refuse it
	case CouponClaimed:
		return bytes.Contains(line, expiresAtKey) // without, the coupon has its campaign's end
	default:
		return events[t].Due
	}
}

// EventNamed returns the event with that name, NoEvent if there is none. The switch has the frequent ones; a test holds
// it to the table.
func EventNamed(name []byte) EventType {
	switch string(name) {
	case "coupon.claimed":
		return CouponClaimed
	case "coupon.redeemed":
		return CouponRedeemed
	case "coupon.rolled_back":
		return CouponRolledBack
	case "coupons.expired":
		return CouponsExpired
	case "reminder.set":
		return ReminderSet
	case "reminder.cancelled":
		return ReminderCancelled
	case "reminders.due":
		return RemindersDue
	case "commands.refused":
		return CommandsRefused
	}
	for t := NoEvent + 1; t < numEvents; t++ {
		if string(name) == events[t].Name {
			return t
		}
	}
	return NoEvent
}

// MaxDueCustomers is the most customers in one reminder.due line.
const MaxDueCustomers = 5_000

// MaxDueBytes bounds the payload of a message of reminder.due lines.
const MaxDueBytes = 256 << 10

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
	By       string // the person whose command caused it; "" = a producer's, or not known
	// RequestID is of the request whose command caused it, where its client sent one.
	RequestID string

	Number   uint32 // campaign number
	Settings Settings
	Codes    []string // imported

	N             uint32
	Replaces      uint32 // of a claim: the customer's coupon before it, if that is void
	Code          string
	CustomerID    string
	CustomerIDs   []string // of reminder.due
	Attributes    []byte
	ExpiresAt     Instant // the coupon's own; 0 = inherits
	OrderID       string
	RedeemedCount uint32
	Reason        string // of a void or a rejection
	Status        string // after a roll back, void or extend: claimed, redeemed, expired or voided
	ByN           bool   // the command named the coupon by campaign and n, not by its code

	FromN, ThroughN uint32 // allotted
	Batch           string

	Through Instant // expired
	Count   uint64

	R        uint64   // reminder subscription, rising per campaign
	Rs       []uint64 // of CustomerIDs
	Kind     string
	Before   time.Duration
	Zone     string // the customers' time zone; "" = not known
	Merged   bool   // of reminder.due: in one message with the line before it
	Withheld string // of reminder.due: why it is not delivered; "" = it is
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

	// Of a command.rejected for Count bad lines, 0 = for one. The first is line Line of message Sequence.
	LastSequence uint64 // message of the last of them
	Bytes        uint64 // how long they are together
}

// Restorable reports whether a reminder.cancelled event was caused by a redemption, whose rollback sets the reminder again.
func (e *Event) Restorable() bool { return e.CustomerID == "" && e.N != 0 }

// DueSet identifies pending reminders by what they have in common: the kind, the instant at which they are due, and the
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

// Each yields a reminder.due event once for each of its customers, with CustomerID and R set and without the lists. What is
// yielded is valid until the next one. Other events are yielded as they are.
func (e *Event) Each() iter.Seq[*Event] {
	return func(yield func(*Event) bool) {
		if e.Type != ReminderDue {
			yield(e)
			return
		}
		one := *e
		one.CustomerIDs, one.Rs = nil, nil
		for i := range min(len(e.CustomerIDs), len(e.Rs)) {
			if one.CustomerID, one.R = e.CustomerIDs[i], e.Rs[i]; !yield(&one) {
				return
			}
		}
	}
}

// Accepts returns the command that e accepts under its id, NoCommand if it follows from another event of that command: a
// reminder that a rollback sets again, or one that a redemption or a void cancels.
func (e *Event) Accepts() CommandType {
	if events[e.Type].About == AboutReminder && e.CustomerID == "" {
		return NoCommand
	}
	return events[e.Type].Command
}

// at returns a pointer to the value of a field. Of expires_at that is the campaign's for an event with settings, the
// coupon's for all others.
func (e *Event) at(f Field) any {
	switch f &^ always {
	case fCampaign:
		return &e.Campaign
	case fAt:
		return &e.At
	case fID:
		return &e.ID
	case fBy:
		return &e.By
	case fRequestID:
		return &e.RequestID
	case fNumber:
		return &e.Number
	case fCodeList:
		return &e.Codes
	case fCustomerIDs:
		return &e.CustomerIDs
	case fRList:
		return &e.Rs
	case fN:
		return &e.N
	case fReplaces:
		return &e.Replaces
	case fCode:
		return &e.Code
	case fCustomerID:
		return &e.CustomerID
	case fAttributes:
		return &e.Attributes
	case fExpiresAt:
		if e.Type != CampaignCreated && e.Type != CampaignUpdated {
			return &e.ExpiresAt
		}
	case fOrderID:
		return &e.OrderID
	case fRedeemedCount:
		return &e.RedeemedCount
	case fReason:
		return &e.Reason
	case fStatus:
		return &e.Status
	case fByN:
		return &e.ByN
	case fThrough:
		return &e.Through
	case fCount:
		return &e.Count
	case fFromN:
		return &e.FromN
	case fThroughN:
		return &e.ThroughN
	case fBatch:
		return &e.Batch
	case fR:
		return &e.R
	case fKind:
		return &e.Kind
	case fBefore:
		return &e.Before
	case fZone:
		return &e.Zone
	case fMerged:
		return &e.Merged
	case fWithheld:
		return &e.Withheld
	case fDueAt:
		return &e.DueAt
	case fFromR:
		return &e.FromR
	case fThroughR:
		return &e.ThroughR
	case fFired:
		return &e.Fired
	case fDropped:
		return &e.Dropped
	case fPassed:
		return &e.Passed
	case fCounts:
		return &e.Refused
	case fSample:
		return &e.Sample
	case fSequence:
		return &e.Sequence
	case fLine:
		return &e.Line
	case fLastSequence:
		return &e.LastSequence
	case fBytes:
		return &e.Bytes
	case fPayload:
		return &e.Payload
	}
	return e.Settings.at(f)
}

// Mask replaces the texts of e that are secret by what mask returns for them. That is every such field and not only those
// of e's type: a line of the log may have others.
func (e *Event) Mask(mask func(s Secret, text string) string) {
	for _, f := range secretFields {
		secret := fieldSpecs[f].secret
		switch p := e.at(f).(type) {
		case *string:
			*p = mask(secret, *p)
		case *[]string:
			for i := range *p {
				(*p)[i] = mask(secret, (*p)[i])
			}
			if secret == SecretQuote { // no list of as many customers
				*p = slices.DeleteFunc(*p, func(text string) bool { return text == "" })
			}
		}
	}
}

// byKey starts the field of every event that a person caused. It is no field of commands: who sends one is not taken from its
// line. requestIDKey starts the last one, of commands too.
const (
	byKey        = `,"by":`
	requestIDKey = `,"request_id":`
)

// AppendJSON appends e as one line without the newline.
func (e *Event) AppendJSON(dst []byte) []byte { return e.AppendWith(dst, nil) }

// AppendWith is AppendJSON with the texts of instants that the cache has; nil = none. Coupon events are written by hand,
// because a lane writes hundreds of thousands a second; a test holds them to the table.
func (e *Event) AppendWith(dst []byte, cache *LineCache) []byte {
	spec := &events[e.Type]
	dst = append(dst, `{"type":"`...)
	dst = append(dst, spec.Name...)
	dst = append(dst, '"')
	dst = appendStringField(dst, `,"campaign":`, e.Campaign)
	dst = cache.field(dst, `,"at":`, e.At)
	dst = appendStringField(dst, `,"id":`, e.ID)
	if spec.About != AboutCoupon {
		return e.appendOrigin(e.appendFields(dst, cache))
	}
	dst = appendUintField(dst, `,"n":`, uint64(e.N))
	dst = appendUintField(dst, `,"replaces":`, uint64(e.Replaces))
	dst = cache.codeField(dst, e.Code)
	dst = appendStringField(dst, `,"customer_id":`, e.CustomerID)
	dst = appendRawField(dst, `,"attributes":`, e.Attributes)
	dst = cache.field(dst, `,"expires_at":`, e.ExpiresAt)
	dst = appendStringField(dst, `,"order_id":`, e.OrderID)
	if e.Type == CouponRedeemed || e.Type == CouponRolledBack {
		dst = appendNumber(append(dst, `,"redeemed_count":`...), uint64(e.RedeemedCount))
	}
	dst = appendStringField(dst, `,"reason":`, e.Reason)
	dst = appendStringField(dst, `,"status":`, e.Status)
	if e.ByN {
		dst = append(dst, `,"by_n":true`...)
	}
	return e.appendOrigin(dst)
}

// appendOrigin ends a line.
func (e *Event) appendOrigin(dst []byte) []byte {
	return append(appendStringField(appendStringField(dst, byKey, e.By), requestIDKey, e.RequestID), '}')
}

// appendFields appends the fields of e's type in the order of the table.
func (e *Event) appendFields(dst []byte, cache *LineCache) []byte {
	for _, f := range events[e.Type].Fields {
		if f != fBefore || e.Kind != "" {
			dst = appendValue(dst, f, e.at(f), cache)
		}
	}
	return dst
}
