package wire

import (
	"strconv"
	"time"
)

// CommandType says what a command asks for.
type CommandType uint8

// The commands.
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
	NumCommands
)

var commandNames = [NumCommands]string{"", "create_campaign", "update_campaign", "pause_campaign", "resume_campaign",
	"end_campaign", "import_codes", "claim", "redeem", "rollback", "void", "extend", "remind", "unremind", "expire", "remind_due"}

func (t CommandType) String() string { return commandNames[t] }

// commandNamed is a switch for the reason that fieldNamed is one.
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
	case "void":
		return Void
	case "extend":
		return Extend
	case "expire":
		return Expire
	case "remind_due":
		return RemindDue
	case "create_campaign":
		return CreateCampaign
	case "update_campaign":
		return UpdateCampaign
	case "pause_campaign":
		return PauseCampaign
	case "resume_campaign":
		return ResumeCampaign
	case "end_campaign":
		return EndCampaign
	case "import_codes":
		return ImportCodes
	}
	return NoCommand
}

// Known reports whether t is one of the commands.
func (t CommandType) Known() bool { return t != NoCommand && t < NumCommands }

// HasCode reports whether the command names a coupon by its code and may leave the campaign out.
func (t CommandType) HasCode() bool { return t == Redeem || t == Rollback || t == Void || t == Extend }

// Scope is who may send a command: it follows from the subject a message came on.
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
	switch t {
	case Claim, Redeem, Rollback, Remind, Unremind:
		return s == ScopeProducer || s == ScopeTrusted
	case Expire, RemindDue:
		return s == ScopeScheduler
	case NoCommand:
		return false
	}
	return s == ScopeOperator || s == ScopeTrusted
}

// Reminder kinds.
const (
	KindOpens   = "opens"   // before claims open
	KindExpires = "expires" // before the customer's newest coupon expires
)

// Command is one parsed command line. Which fields count depends on Type; the others are zero.
type Command struct {
	Type       CommandType
	ID         string
	Campaign   string
	CustomerID string
	Attributes []byte // compact flat JSON object
	Code       string
	OrderID    string
	Reason     string
	ExpiresAt  Instant // extend
	Kind       string
	Before     time.Duration
	Patch      Patch    // create_campaign, update_campaign
	Codes      []string // import_codes, normalised
	Through    Instant  // expire
	DueAt      Instant  // remind_due
	ThroughR   uint64   // remind_due
	ReadyAt    Instant  // remind_due: from when on it only waited for the operator's rate; 0 = it did not
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
	dst = appendInstantField(dst, `,"expires_at":`, c.ExpiresAt)
	switch c.Type {
	case Remind, Unremind:
		dst = appendStringField(dst, `,"kind":`, c.Kind)
		dst = AppendText(append(dst, `,"before":`...), c.Before.String())
	case CreateCampaign, UpdateCampaign:
		dst = c.Patch.append(dst)
	case ImportCodes:
		dst = appendTextsField(dst, `,"codes":`, c.Codes)
	case Expire:
		dst = appendInstantField(dst, `,"through":`, c.Through)
	case RemindDue:
		dst = appendStringField(dst, `,"kind":`, c.Kind)
		dst = appendInstantField(dst, `,"due_at":`, c.DueAt)
		dst = appendUintField(dst, `,"through_r":`, c.ThroughR)
		dst = appendInstantField(dst, `,"ready_at":`, c.ReadyAt)
	}
	return append(dst, '}')
}

// append writes the given settings; a given field without value is written as null.
func (p *Patch) append(dst []byte) []byte {
	for _, f := range settingFields {
		if !p.given.has(f) {
			continue
		}
		before := len(dst)
		key := fieldKeys[f]
		switch f {
		case fCodes:
			dst = appendNumber(append(dst, key...), uint64(p.Codes))
		case fPerCustomer:
			dst = appendNumber(append(dst, key...), uint64(p.PerCustomer))
		case fMaxRedemptions:
			dst = appendNumber(append(dst, key...), uint64(p.MaxRedemptions))
		case fOpensAt:
			dst = appendInstantField(dst, key, p.OpensAt)
		case fClosesAt:
			dst = appendInstantField(dst, key, p.ClosesAt)
		case fExpiresAt:
			dst = appendInstantField(dst, key, p.ExpiresAt)
		case fValidFor:
			dst = appendDurationField(dst, key, p.ValidFor)
		case fLateAfter:
			dst = appendDurationField(dst, key, p.LateAfter)
		case fPrefix:
			dst = appendStringField(dst, key, p.Prefix)
		case fCategory:
			dst = appendStringField(dst, key, p.Category)
		case fPriority:
			dst = appendStringField(dst, key, p.Priority)
		case fBenefit:
			dst = appendRawField(dst, key, p.Benefit)
		}
		if len(dst) == before {
			dst = append(append(dst, key...), "null"...)
		}
	}
	return dst
}

func appendNumber(dst []byte, v uint64) []byte { return strconv.AppendUint(dst, v, 10) }

func appendDurationField(dst []byte, key string, d time.Duration) []byte {
	if d == 0 {
		return dst
	}
	return AppendText(append(dst, key...), d.String())
}

func appendTextsField(dst []byte, key string, vs []string) []byte {
	if len(vs) == 0 {
		return dst
	}
	dst = append(append(dst, key...), '[')
	for i, v := range vs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendText(dst, v)
	}
	return append(dst, ']')
}
