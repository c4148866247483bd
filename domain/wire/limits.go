package wire

import "time"

// Limits, as CONTRACT.md has them. Sizes are bytes.
const (
	MaxLine         = 16 << 10  // one command line
	MaxMessage      = 256 << 10 // one command message
	MaxMessageLines = 1000      // command lines in one message
	MaxCommandID    = 64
	MaxCampaignName = 64
	MaxCustomerID   = 128
	MaxOrderID      = 128
	MaxReason       = 256
	MaxAttributes   = 1 << 10
	MaxBenefit      = 512
	MaxCategory     = 64
	MaxCodeInput    = 128
	MaxCodes        = 1_000_000_000
	MaxPerCustomer  = 1_000_000
	MaxRedemptions  = 1_000_000
	MaxValidFor     = 100 * 366 * 24 * time.Hour
	MaxBefore       = 366 * 24 * time.Hour
	MaxReminders    = 3           // pending reminders that hang on one coupon
	MaxOpenings     = 8           // pending reminders of one customer of a campaign's opening
	MaxPending      = 100_000_000 // pending reminders of one campaign
	MaxRollbacks    = 32          // rolled back redemptions of one coupon, for each use that it allows
	MaxStep         = 512 << 10   // the events of one step
)

// DefaultReminderGrace is how late a reminder may still fire although what it announces has passed; later than that it is
// dropped and counted.
const DefaultReminderGrace = 5 * time.Minute
