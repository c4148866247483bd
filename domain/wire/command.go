package wire

import (
	"iter"
	"strings"
	"time"
)

// CommandType is what a command requests.
type CommandType uint8

// The commands. Their numbers are stored in snapshots: a new one is added at the end.
const (
	NoCommand CommandType = iota
	CreateCampaign
	UpdateCampaign
	PauseCampaign
	ResumeCampaign
	EndCampaign
	ImportCodes
	Claim
	Redeem
	Rollback
	Void
	Extend
	Remind
	Unremind
	Expire
	RemindDue
	Allot
	numCommands
)

// The statuses of outcomes. Those of coupons are among them.
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
	StatusAllotted          = "allotted"
	StatusRefused           = "refused"
	StatusValid             = "valid" // of a validation: a redemption would be accepted
)

// CouponStatuses are what a coupon can be, the first one until something happens to it. Nothing changes them.
var CouponStatuses = []string{StatusClaimed, StatusRedeemed, StatusExpired, StatusVoided}

// CommandSpec is a row of the table of commands.
type CommandSpec struct {
	Name  string
	Scope Scope // the narrowest one that it may come in; ScopeTrusted includes the producers' and the operators'

	Required, Optional []Field // beside id and type; campaign, and request_id to people and programs, is allowed to all; campaign and n may take the place of code
	Settings           bool    // takes the settings of a campaign too

	// Endpoint is the subject of the service for it, without "scrip."; "" = none. A last token * is the campaign.
	Endpoint string
	Busy     bool // many requests come at once, or large ones

	Status string // of the outcome when it is done

	// Cancels is whether it may cancel all reminders of its coupon, which makes an event for each. The bound on the events
	// of a message counts them.
	Cancels bool
	// Voids is whether it may make a coupon void, which a claim of its holder then replaces: its event names it. The bound
	// counts that, too.
	Voids bool
}

var commands = [numCommands]CommandSpec{
	CreateCampaign: {Name: "create_campaign", Scope: ScopeOperator, Required: list(fCampaign, fCodes), Settings: true,
		Endpoint: "campaign.create", Status: StatusCreated},
	UpdateCampaign: {Name: "update_campaign", Scope: ScopeOperator, Required: list(fCampaign), Optional: list(fIfVersion), Settings: true,
		Endpoint: "campaign.update", Status: StatusUpdated},
	PauseCampaign: {Name: "pause_campaign", Scope: ScopeOperator, Required: list(fCampaign), Optional: list(fIfVersion),
		Endpoint: "campaign.pause", Status: StatusPaused},
	ResumeCampaign: {Name: "resume_campaign", Scope: ScopeOperator, Required: list(fCampaign), Optional: list(fIfVersion),
		Endpoint: "campaign.resume", Status: StatusResumed},
	EndCampaign: {Name: "end_campaign", Scope: ScopeOperator, Required: list(fCampaign), Optional: list(fIfVersion),
		Endpoint: "campaign.end", Status: StatusEnded},
	ImportCodes: {Name: "import_codes", Scope: ScopeOperator, Required: list(fCampaign, fCodes), Optional: list(fWeakCodes),
		Endpoint: "codes.import", Busy: true, Status: StatusImported},
	Claim: {Name: "claim", Scope: ScopeProducer, Required: list(fCampaign, fCustomerID), Optional: list(fAttributes),
		Endpoint: "claim.*", Busy: true, Status: StatusClaimed},
	Redeem: {Name: "redeem", Scope: ScopeProducer, Required: list(fCode, fOrderID), Optional: list(fCustomerID, fCampaign, fN),
		Endpoint: "redeem", Busy: true, Status: StatusRedeemed, Cancels: true},
	Rollback: {Name: "rollback", Scope: ScopeProducer, Required: list(fCode, fOrderID), Optional: list(fCustomerID, fCampaign, fN),
		Endpoint: "rollback", Busy: true, Status: StatusRolledBack},
	Void: {Name: "void", Scope: ScopeOperator, Required: list(fCode), Optional: list(fReason, fCampaign, fN),
		Endpoint: "void", Status: StatusVoided, Cancels: true, Voids: true},
	Extend: {Name: "extend", Scope: ScopeOperator, Required: list(fCode, fExpiresAt), Optional: list(fCampaign, fN),
		Endpoint: "extend", Status: StatusExtended},
	Remind: {Name: "remind", Scope: ScopeProducer, Required: list(fCampaign, fCustomerID, fKind, fBefore), Optional: list(fZone),
		Endpoint: "remind.*", Busy: true, Status: StatusReminderSet},
	Unremind: {Name: "unremind", Scope: ScopeProducer, Required: list(fCampaign, fCustomerID, fKind, fBefore),
		Endpoint: "unremind.*", Busy: true, Status: StatusReminderCancelled},
	Expire: {Name: "expire", Scope: ScopeScheduler, Required: list(fCampaign, fThrough),
		Status: StatusExpired},
	RemindDue: {Name: "remind_due", Scope: ScopeScheduler, Required: list(fCampaign, fKind, fDueAt, fThroughR), Optional: list(fReadyAt),
		Status: StatusReminderSet},
	Allot: {Name: "allot", Scope: ScopeOperator, Required: list(fCampaign, fCount, fBatch),
		Endpoint: "codes.allot", Status: StatusAllotted},
}

func list(fs ...Field) []Field { return fs }

// allowed, required and written follow from the table. written are the fields after those that nearly all commands have.
var allowed, required, written [numCommands]fieldSet

func init() {
	common := general | fields(fCustomerID, fAttributes, fCode, fOrderID, fReason, fRequestID)
	for t := range commands {
		s := &commands[t]
		required[t] = fields(s.Required...)
		allowed[t] = general | required[t] | fields(s.Optional...)
		if s.Scope != ScopeScheduler {
			allowed[t].add(fRequestID)
		}
		written[t] = allowed[t] &^ common
		if s.Settings {
			written[t] &^= settingSet
			allowed[t] |= settingSet
		}
	}
}

// Commands returns the commands.
func Commands() iter.Seq[CommandType] {
	return func(yield func(CommandType) bool) {
		for t := NoCommand + 1; t < numCommands; t++ {
			if !yield(t) {
				return
			}
		}
	}
}

// Spec returns the row of t in the table of commands.
func (t CommandType) Spec() *CommandSpec { return &commands[t] }

func (t CommandType) String() string { return commands[t].Name }

// Known reports whether t is one of the commands.
func (t CommandType) Known() bool { return t != NoCommand && t < numCommands }

const (
	// CodeOnly is why a producer's request with n is refused: n can be guessed, so it must not do what takes the code.
	CodeOnly = "campaign and n name a coupon for support and operators only; give its code"
	// NoForm is why a code without a campaign is refused that no lane can have.
	NoForm = "no generated code has this form; an imported code needs its campaign in the field campaign"
	// MaskedCode is why a code with stars is refused.
	MaskedCode = "is masked; give the whole code, or campaign and n instead"
	// OneName is why a request with code and n is refused.
	OneName = "given with n; name the coupon by its code, or by campaign and n"
)

// HasCode reports whether the command names a coupon: by its code, without the campaign if that is generated, or by campaign
// and n.
func (t CommandType) HasCode() bool { return required[t].has(fCode) }

// NamesCampaign reports whether the endpoint's subject ends in the campaign.
func (s *CommandSpec) NamesCampaign() bool { return strings.HasSuffix(s.Endpoint, ".*") }

// Takes describes the fields that a request on the endpoint may have, for people.
func (s *CommandSpec) Takes() string {
	var names []string
	named := false // a setting
	for _, f := range append(append([]Field(nil), s.Required...), s.Optional...) {
		named = named || settingSet.has(f)
		if f != fCampaign || !s.NamesCampaign() {
			names = append(names, f.String())
		}
	}
	switch {
	case s.Settings && named:
		names = append(names, "and any other setting")
	case s.Settings:
		names = append(names, "and any setting")
	}
	return strings.Join(names, ", ")
}

// CommandNamed is a switch for the reason that fieldNamed is one. A test holds it to the table.
func CommandNamed(name []byte) CommandType {
	switch string(name) {
	case "claim":
		return Claim
	case "redeem":
		return Redeem
	case "rollback":
		return Rollback
	case "remind":
		return Remind
	case "unremind":
		return Unremind
	case "expire":
		return Expire
	case "remind_due":
		return RemindDue
	}
	for t := range Commands() {
		if string(name) == commands[t].Name {
			return t
		}
	}
	return NoCommand
}

// Scope is who may send a command. It follows from the subject of a message.
type Scope uint8

// The scopes.
const (
	ScopeProducer  Scope = iota // scrip.lane.<lane>.cmd.<campaign> and, for several campaigns, scrip.lane.<lane>.shop
	ScopeOperator               // scrip.lane.<lane>.admin.<campaign>
	ScopeTrusted                // scrip.lane.<lane>.cmd: either of the above
	ScopeScheduler              // scrip.lane.<lane>.due
)

// Allows reports whether a command of type t may come in scope s.
func (s Scope) Allows(t CommandType) bool {
	of := commands[t].Scope
	return t != NoCommand && (of == s || s == ScopeTrusted && of != ScopeScheduler)
}

// Reminder kinds.
const (
	KindOpens   = "opens"   // before claims open
	KindExpires = "expires" // before the customer's newest coupon expires
)

// Command is one parsed command line. The table of commands lists which fields a type has; the others are zero.
type Command struct {
	Type       CommandType
	ID         string
	Campaign   string
	CustomerID string
	Attributes []byte // compact flat JSON object
	Code       string
	N          uint32 // of the coupon, instead of Code
	OrderID    string
	Reason     string
	ExpiresAt  Instant // extend
	Kind       string
	Before     time.Duration
	Zone       string   // remind: the customer's time zone; "" = not known
	Patch      Patch    // create_campaign, update_campaign
	Codes      []string // import_codes, normalised
	WeakCodes  bool     // import_codes: codes of fewer than code.MinStrongLen symbols are allowed
	Through    Instant  // expire
	DueAt      Instant  // remind_due
	ThroughR   uint64   // remind_due
	ReadyAt    Instant  // remind_due: the instant from which it waited only for the operator's rate; 0 = it did not wait
	RequestID  string   // of the request that sent it; "" = none
	IfVersion  string   // update, pause, resume, end: the version that the campaign must have; "" = any
	Count      uint64   // allot: coupons
	Batch      string   // allot: their name
}

// at returns a pointer to the value of a field.
func (c *Command) at(f Field) any {
	switch f {
	case fID:
		return &c.ID
	case fCampaign:
		return &c.Campaign
	case fCustomerID:
		return &c.CustomerID
	case fAttributes:
		return &c.Attributes
	case fCode:
		return &c.Code
	case fN:
		return &c.N
	case fOrderID:
		return &c.OrderID
	case fReason:
		return &c.Reason
	case fExpiresAt:
		if !commands[c.Type].Settings {
			return &c.ExpiresAt
		}
	case fKind:
		return &c.Kind
	case fBefore:
		return &c.Before
	case fZone:
		return &c.Zone
	case fCodes:
		if !commands[c.Type].Settings {
			return &c.Codes
		}
	case fWeakCodes:
		return &c.WeakCodes
	case fThrough:
		return &c.Through
	case fDueAt:
		return &c.DueAt
	case fThroughR:
		return &c.ThroughR
	case fReadyAt:
		return &c.ReadyAt
	case fIfVersion:
		return &c.IfVersion
	case fCount:
		return &c.Count
	case fBatch:
		return &c.Batch
	case fRequestID:
		return &c.RequestID
	}
	return c.Patch.at(f)
}

// Texts goes through the texts that a command of this type may have, empty ones included.
func (c *Command) Texts(yield func(text *string) bool) {
	for rest := allowed[c.Type] | general; rest != 0; rest &= rest - 1 {
		if text, ok := c.at(rest.first()).(*string); ok && !yield(text) {
			return
		}
	}
}

// AppendJSON appends c as one command line without the newline.
func (c *Command) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"id":`...)
	dst = AppendText(dst, c.ID)
	dst = appendStringField(dst, `,"type":`, c.Type.String())
	dst = appendStringField(dst, `,"campaign":`, c.Campaign)
	dst = appendStringField(dst, `,"customer_id":`, c.CustomerID)
	dst = appendRawField(dst, `,"attributes":`, c.Attributes)
	dst = appendStringField(dst, `,"code":`, c.Code)
	dst = appendStringField(dst, `,"order_id":`, c.OrderID)
	dst = appendStringField(dst, `,"reason":`, c.Reason)
	for rest := written[c.Type]; rest != 0; rest &= rest - 1 {
		f := rest.first()
		dst = appendValue(dst, f, c.at(f), nil)
	}
	if commands[c.Type].Settings {
		dst = c.Patch.append(dst)
	}
	return append(appendStringField(dst, requestIDKey, c.RequestID), '}')
}
