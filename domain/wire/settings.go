package wire

import (
	"bytes"
	"time"
)

// Settings are what an operator configured for a campaign. The zero value of a field means "none" or its default; a Settings
// that went through [Settings.Check] has its defaults filled in.
type Settings struct {
	Codes          uint32        // coupons to hand out; 0 = codes are imported
	PerCustomer    uint32        // coupons one customer may claim; 0 = unlimited
	OpensAt        Instant       // claims before it are refused; 0 = open since creation
	ClosesAt       Instant       // claims from it on are refused; 0 = ExpiresAt
	ExpiresAt      Instant       // coupons without an own expiry expire here; 0 = never
	ValidFor       time.Duration // coupons are valid so long from their claim; 0 = until ExpiresAt
	LateAfter      time.Duration // reminders later than this are dropped; 0 = while what they announce is to come, none is
	MaxRedemptions uint32        // how often one coupon may be redeemed, at least 1
	Reminders      uint32        // reminders that may be pending; 0 = by the number of codes, see MostReminders
	Prefix         string        // cosmetic, before the code
	Category       string
	Priority       string // high, normal or low
	Benefit        []byte // JSON, part of the outcome of a redemption
}

// Priorities of a campaign.
const (
	PriorityHigh   = "high"
	PriorityNormal = "normal"
	PriorityLow    = "low"
)

// Closes is the instant from which claims are refused, Never if there is none.
func (s *Settings) Closes() Instant {
	switch {
	case s.ClosesAt != 0:
		return s.ClosesAt
	case s.ExpiresAt != 0:
		return s.ExpiresAt
	}
	return Never
}

// Expires is when coupons without an own expiry expire, Never if there is no end.
func (s *Settings) Expires() Instant {
	if s.ExpiresAt == 0 {
		return Never
	}
	return s.ExpiresAt
}

// MostReminders is how many reminders may be pending while the campaign has that many codes, imported ones counted. Reminders of
// an opening need no coupon, so without a bound one producer could set any number for customers that do not exist.
func (s *Settings) MostReminders(codes uint32) uint32 {
	if s.Reminders != 0 {
		return s.Reminders
	}
	return uint32(min(max(uint64(codes)*MaxReminders, MinPending), MaxPending))
}

// ExpiryOf is the own expiry that a coupon claimed at the given time gets: 0 if it inherits the campaign's end.
// Rounded up to the second, from an hour on to the minute, so that coupons expire in groups and never early.
func (s *Settings) ExpiryOf(claimed Instant) Instant {
	if s.ValidFor == 0 {
		return 0
	}
	unit := time.Second
	if s.ValidFor >= time.Hour {
		unit = time.Minute
	}
	return claimed.Add(s.ValidFor).roundUp(unit)
}

// Equal compares all settings.
func (s *Settings) Equal(o *Settings) bool {
	return s.Codes == o.Codes && s.PerCustomer == o.PerCustomer && s.OpensAt == o.OpensAt && s.ClosesAt == o.ClosesAt &&
		s.ExpiresAt == o.ExpiresAt && s.ValidFor == o.ValidFor && s.LateAfter == o.LateAfter && s.MaxRedemptions == o.MaxRedemptions &&
		s.Reminders == o.Reminders && s.Prefix == o.Prefix && s.Category == o.Category && s.Priority == o.Priority && bytes.Equal(s.Benefit, o.Benefit)
}

// Check returns an error for settings that contradict each other.
func (s *Settings) Check() error {
	opens, closes := s.OpensAt, s.Closes()
	switch {
	case s.ExpiresAt != 0 && s.ValidFor != 0:
		return Invalidf("valid_for", "give either expires_at or valid_for, not both")
	case opens != 0 && closes <= opens && s.ClosesAt == 0:
		return Invalidf("expires_at", "must lie after opens_at (%s)", opens)
	case opens != 0 && closes <= opens:
		return Invalidf("closes_at", "must lie after opens_at (%s)", opens)
	case s.ClosesAt > s.Expires():
		return Invalidf("closes_at", "must not lie after expires_at (%s)", s.ExpiresAt)
	}
	return nil
}

// at returns a pointer to the value of a setting, nil for any other field.
func (s *Settings) at(f Field) any {
	switch f &^ always {
	case fCodes:
		return &s.Codes
	case fPerCustomer:
		return &s.PerCustomer
	case fOpensAt:
		return &s.OpensAt
	case fClosesAt:
		return &s.ClosesAt
	case fExpiresAt:
		return &s.ExpiresAt
	case fValidFor:
		return &s.ValidFor
	case fLateAfter:
		return &s.LateAfter
	case fMaxRedemptions:
		return &s.MaxRedemptions
	case fReminders:
		return &s.Reminders
	case fPrefix:
		return &s.Prefix
	case fCategory:
		return &s.Category
	case fPriority:
		return &s.Priority
	case fBenefit:
		return &s.Benefit
	}
	return nil
}

// Append appends the settings as an event has them, each with a comma before it.
func (s *Settings) Append(dst []byte) []byte {
	for _, f := range settingFields {
		dst = appendValue(dst, f, s.at(f), nil)
	}
	return dst
}

// Patch is a set of settings with the knowledge of which were given. For an update, a field given as null goes back to
// its default; a field left out stays as it is.
type Patch struct {
	Settings
	given fieldSet
}

// Gives reports whether the setting with that name was given.
func (p *Patch) Gives(name string) bool { return p.given.has(fieldNamed([]byte(name))) }

// Empty reports whether no setting was given.
func (p *Patch) Empty() bool { return p.given == 0 }

// Onto returns base with the given settings replaced.
func (p *Patch) Onto(base Settings) Settings {
	for _, f := range settingFields {
		if p.given.has(f) {
			assign(base.at(f), p.at(f))
		}
	}
	// An end and a life time exclude each other: giving the one replaces the other.
	ends, lives := p.given.has(fExpiresAt), p.given.has(fValidFor)
	switch {
	case ends && !lives && p.ExpiresAt != 0:
		base.ValidFor = 0
	case lives && !ends && p.ValidFor != 0:
		base.ExpiresAt = 0
	}
	return base
}

// append writes the given settings; one without a value is written as null.
func (p *Patch) append(dst []byte) []byte {
	for _, f := range settingFields {
		if !p.given.has(f) {
			continue
		}
		before := len(dst)
		if f == fMaxRedemptions {
			f |= always
		}
		if dst = appendValue(dst, f, p.at(f), nil); len(dst) == before {
			dst = append(append(dst, fieldSpecs[f].key...), "null"...)
		}
	}
	return dst
}

// PatchOf gives every field of s, as a create does.
func PatchOf(s Settings) Patch {
	p := Patch{Settings: s}
	for _, f := range settingFields {
		p.given.add(f)
	}
	return p
}

// Set marks fields by name as given; a name that is not a setting is ignored. For SDK and CLI.
func (p *Patch) Set(names ...string) {
	for _, n := range names {
		if f := fieldNamed([]byte(n)); f != fUnknown {
			p.given.add(f)
		}
	}
}

// DefaultSettings are those of a campaign created with nothing but a number of codes.
func DefaultSettings(codes uint32) Settings {
	return Settings{Codes: codes, PerCustomer: 1, MaxRedemptions: 1, Priority: PriorityNormal}
}
