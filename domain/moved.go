package domain

import (
	"github.com/seed-4a2410e3/scrip/domain/reminder"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// The names below moved to packages wire and reminder; use them there. This file goes as soon as nothing needs it.

type (
	CommandType         = wire.CommandType
	Scope               = wire.Scope
	Command             = wire.Command
	EventType           = wire.EventType
	Event               = wire.Event
	DueSet              = wire.DueSet
	Instant             = wire.Instant
	Outcome             = wire.Outcome
	Defaults            = wire.Defaults
	Refusal             = wire.Refusal
	InvalidError        = wire.InvalidError
	Settings            = wire.Settings
	Patch               = wire.Patch
	DueReminders        = reminder.DueReminders
	FrozenSubscriptions = reminder.FrozenSubscriptions
	Subscriptions       = reminder.Subscriptions
	Subscription        = reminder.Subscription
	Anchors             = reminder.Anchors
)

const (
	CreateCampaign          = wire.CreateCampaign
	UpdateCampaign          = wire.UpdateCampaign
	PauseCampaign           = wire.PauseCampaign
	ResumeCampaign          = wire.ResumeCampaign
	EndCampaign             = wire.EndCampaign
	ImportCodes             = wire.ImportCodes
	Claim                   = wire.Claim
	Redeem                  = wire.Redeem
	Rollback                = wire.Rollback
	Void                    = wire.Void
	Extend                  = wire.Extend
	Remind                  = wire.Remind
	Unremind                = wire.Unremind
	Expire                  = wire.Expire
	RemindDue               = wire.RemindDue
	ScopeProducer           = wire.ScopeProducer
	ScopeOperator           = wire.ScopeOperator
	ScopeTrusted            = wire.ScopeTrusted
	ScopeScheduler          = wire.ScopeScheduler
	KindOpens               = wire.KindOpens
	KindExpires             = wire.KindExpires
	NoEvent                 = wire.NoEvent
	CampaignCreated         = wire.CampaignCreated
	CampaignUpdated         = wire.CampaignUpdated
	CampaignPausedEvent     = wire.CampaignPausedEvent
	CampaignResumed         = wire.CampaignResumed
	CampaignEndedEvent      = wire.CampaignEndedEvent
	CampaignSoldOut         = wire.CampaignSoldOut
	CodesImported           = wire.CodesImported
	CouponClaimed           = wire.CouponClaimed
	CouponRedeemed          = wire.CouponRedeemed
	CouponRolledBack        = wire.CouponRolledBack
	CouponVoided            = wire.CouponVoided
	CouponExtended          = wire.CouponExtended
	CouponsExpired          = wire.CouponsExpired
	ReminderSet             = wire.ReminderSet
	ReminderCancelled       = wire.ReminderCancelled
	RemindersDue            = wire.RemindersDue
	CommandsRefused         = wire.CommandsRefused
	CommandRejected         = wire.CommandRejected
	ReminderDue             = wire.ReminderDue
	Never                   = wire.Never
	DefaultReminderGrace    = wire.DefaultReminderGrace
	MaxLine                 = wire.MaxLine
	MaxMessage              = wire.MaxMessage
	MaxMessageLines         = wire.MaxMessageLines
	MaxCommandID            = wire.MaxCommandID
	MaxCampaignName         = wire.MaxCampaignName
	MaxCustomerID           = wire.MaxCustomerID
	MaxOrderID              = wire.MaxOrderID
	MaxCodeInput            = wire.MaxCodeInput
	MaxCodes                = wire.MaxCodes
	MaxPerCustomer          = wire.MaxPerCustomer
	MaxRedemptions          = wire.MaxRedemptions
	MaxValidFor             = wire.MaxValidFor
	MaxBefore               = wire.MaxBefore
	MaxStep                 = wire.MaxStep
	StatusClaimed           = wire.StatusClaimed
	StatusRedeemed          = wire.StatusRedeemed
	StatusRolledBack        = wire.StatusRolledBack
	StatusVoided            = wire.StatusVoided
	StatusExtended          = wire.StatusExtended
	StatusReminderSet       = wire.StatusReminderSet
	StatusReminderCancelled = wire.StatusReminderCancelled
	StatusCreated           = wire.StatusCreated
	StatusUpdated           = wire.StatusUpdated
	StatusPaused            = wire.StatusPaused
	StatusResumed           = wire.StatusResumed
	StatusEnded             = wire.StatusEnded
	StatusImported          = wire.StatusImported
	StatusExpired           = wire.StatusExpired
	StatusRefused           = wire.StatusRefused
	Invalid                 = wire.Invalid
	CampaignNotFound        = wire.CampaignNotFound
	SoldOut                 = wire.SoldOut
	CodeNotFound            = wire.CodeNotFound
	Voided                  = wire.Voided
	Expired                 = wire.Expired
	AlreadyRedeemed         = wire.AlreadyRedeemed
	RedemptionLimitReached  = wire.RedemptionLimitReached
	NotRedeemed             = wire.NotRedeemed
	TooLate                 = wire.TooLate
	NotDurable              = wire.NotDurable
	PriorityHigh            = wire.PriorityHigh
	PriorityNormal          = wire.PriorityNormal
	PriorityLow             = wire.PriorityLow
	MaxReminder             = reminder.MaxReminder
)

var (
	ValidCampaignName = wire.ValidCampaignName
	LaneOf            = wire.LaneOf
	ParseEvent        = wire.ParseEvent
	At                = wire.At
	ParseInstant      = wire.ParseInstant
	ParseOutcome      = wire.ParseOutcome
	ParseCommand      = wire.ParseCommand
	PatchOf           = wire.PatchOf
	DefaultSettings   = wire.DefaultSettings
	DueAt             = reminder.DueAt
)
