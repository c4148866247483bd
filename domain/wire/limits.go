package wire

import (
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits, as CONTRACT.md has them. Sizes are bytes.
const (
	MaxLine         = 16 << 10  // one command line
	MaxMessage      = 256 << 10 // one command message
	MaxMessageLines = 1000      // command lines in one message
	MaxCommandID    = 64
	MaxBy           = 64
	MaxCampaignName = 64
	MaxCustomerID   = 128
	MaxOrderID      = 128
	MaxReason       = 256
	MaxAttributes   = 1 << 10
	MaxBenefit      = 512
	MaxVersion      = 64 // of a campaign, in if_version
	MaxCategory     = 64
	MaxCodeInput    = 128
	MaxCodes        = 1_000_000_000
	MaxPerCustomer  = 1_000_000
	MaxRedemptions  = 1_000_000
	MaxValidFor     = 100 * 366 * 24 * time.Hour
	MaxBefore       = 366 * 24 * time.Hour
	MaxReminders    = 3           // pending reminders of one coupon
	MaxOpenings     = 8           // pending reminders of one customer of a campaign's opening
	MaxPending      = 100_000_000 // pending reminders of one campaign, whatever its settings
	MinPending      = 10_000      // what a campaign without the setting may have, however few its codes
	MaxRollbacks    = 32          // rolled back redemptions of one coupon, for each use that it allows
	MaxStep         = 512 << 10   // the events of one step
)

// DefaultReminderGrace is how late a reminder may still fire although what it announces has passed; later than that it is
// dropped and counted.
const DefaultReminderGrace = 5 * time.Minute

// ValidBy reports whether s can name a person in events: 1 to 64 bytes of printable UTF-8 without spaces at its ends.
func ValidBy(s string) bool {
	if s == "" || len(s) > MaxBy || !utf8.ValidString(s) || s[0] == ' ' || s[len(s)-1] == ' ' {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// CheckBy returns an error that names the field if s cannot name a person in events; see ValidBy.
func CheckBy(field, s string) error {
	if !ValidBy(s) {
		return fmt.Errorf("%s is %s, expected 1 to %d bytes of printable text without spaces at its ends", field, Quote(s), MaxBy)
	}
	return nil
}

// ValidCampaignName reports whether s is 1 to 64 of A-Z a-z 0-9 _ -.
func ValidCampaignName(s string) bool {
	if len(s) == 0 || len(s) > MaxCampaignName {
		return false
	}
	for i := range len(s) {
		if !nameByte[s[i]] {
			return false
		}
	}
	return true
}

// nameByte are the bytes of campaign names. A table, because every byte of every line's campaign is checked.
var nameByte = func() (t [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") {
		t[c] = true
	}
	return t
}()

// LaneOf is the lane of a campaign: FNV-1a-32 of its name mod lanes, what NATS' own partition(lanes, 1) computes.
func LaneOf(campaignName string, lanes int) int {
	h := uint32(2166136261)
	for i := 0; i < len(campaignName); i++ {
		h = (h ^ uint32(campaignName[i])) * 16777619
	}
	return int(h % uint32(lanes))
}
