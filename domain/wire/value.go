package wire

import (
	"errors"
	"fmt"
	"math"
	"strings"
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
	MaxRequestID    = 64
	MaxBy           = 64
	MaxCampaignName = 64
	MaxCustomerID   = 128
	MaxOrderID      = 128
	MaxReason       = 256
	MaxAttributes   = 1 << 10
	MaxBenefit      = 512
	MaxVersion      = 64 // of a campaign, in if_version
	MaxCategory     = 64
	MaxBatch        = 64
	MaxZone         = 40
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

// Instant is a point in time in microseconds since 1970-01-01T00:00:00Z. Zero means "none". Microseconds are what
// PostgreSQL stores: a finer time would differ after a rebuild.
type Instant int64

// Never sorts after every real instant: the due time of what has none.
const Never Instant = math.MaxInt64

// MaxInstant is the last microsecond of the year 9999, the last one RFC 3339 can write.
const MaxInstant Instant = 253402300799_999999

// At converts t, truncated to microseconds.
func At(t time.Time) Instant { return Instant(t.UnixMicro()) }

// Time converts back, in UTC.
func (i Instant) Time() time.Time { return time.UnixMicro(int64(i)).UTC() }

// Add returns i + d, not beyond the year 9999.
func (i Instant) Add(d time.Duration) Instant {
	sum := i + Instant(d/time.Microsecond)
	if d > 0 && (sum < i || sum > MaxInstant) {
		return MaxInstant
	}
	return sum
}

// roundUp returns the first multiple of unit at or after i.
func (i Instant) roundUp(unit time.Duration) Instant {
	u := Instant(unit / time.Microsecond)
	up := (i + u - 1) / u * u
	if up > MaxInstant {
		return MaxInstant
	}
	return up
}

// String formats i as RFC 3339 in UTC with up to six decimals.
func (i Instant) String() string { return string(i.Append(nil)) }

func (i Instant) Append(dst []byte) []byte {
	// By hand because every line carries one or two: time.AppendFormat costs ten times as much.
	if i < 0 || i > MaxInstant {
		return i.Time().AppendFormat(dst, time.RFC3339Nano)
	}
	secs, micros := uint64(i)/1e6, uint64(i)%1e6
	days, rest := secs/86400, secs%86400
	y, m, d := civil(int64(days))
	dst = append(dst, stampForm...)
	b := dst[len(dst)-len(stampForm):]
	two(b[0:], uint64(y)/100)
	two(b[2:], uint64(y)%100)
	two(b[5:], uint64(m))
	two(b[8:], uint64(d))
	two(b[11:], rest/3600)
	two(b[14:], rest/60%60)
	two(b[17:], rest%60)
	two(b[20:], micros/10000)
	two(b[22:], micros/100%100)
	two(b[24:], micros%100)
	end := 25 // the last of the decimals
	for end > 19 && b[end] == '0' {
		end--
	}
	if b[end] != '.' {
		end++
	}
	b[end] = 'Z'
	return dst[:len(dst)-len(stampForm)+end+1]
}

// stampForm has the length of what append writes at most.
const stampForm = "2006-01-02T15:04:05.000000Z"

// two writes v, below 100, as two digits.
func two(b []byte, v uint64) {
	_ = b[1]
	b[0], b[1] = byte('0'+v/10), byte('0'+v%10)
}

// civil turns days since 1970-01-01 into a Gregorian date. Source: Howard Hinnant, "chrono-Compatible Low-Level Date
// Algorithms", civil_from_days.
func civil(days int64) (y, m, d int) {
	z := days + 719468
	era := z / 146097
	if z < 0 {
		era = (z - 146096) / 146097
	}
	doe := z - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	d = int(doy - (153*mp+2)/5 + 1)
	m = int(mp + 3)
	if m > 12 {
		m -= 12
	}
	y = int(yoe + era*400)
	if m <= 2 {
		y++
	}
	return y, m, d
}

// ParseInstant reads an RFC 3339 time in any zone, truncated to microseconds, from 1970 (exclusive) to 9999.
func ParseInstant(s string) (Instant, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return 0, errors.New("must be an RFC 3339 time such as 2026-11-27T00:00:00Z")
	}
	if i := At(t); i > 0 && i <= MaxInstant {
		return i, nil
	}
	return 0, errors.New("must lie between the years 1970 and 9999")
}

// parseStamp reads what Append wrote, and uses ParseInstant for anything else.
func parseStamp(s []byte) (Instant, error) {
	if len(s) >= 20 && len(s) <= 27 && s[len(s)-1] == 'Z' && s[4] == '-' && s[7] == '-' && s[10] == 'T' && s[13] == ':' && s[16] == ':' {
		y, ok1 := digits(s[0:4])
		mo, ok2 := digits(s[5:7])
		d, ok3 := digits(s[8:10])
		h, ok4 := digits(s[11:13])
		mi, ok5 := digits(s[14:16])
		se, ok6 := digits(s[17:19])
		frac, ok7 := int64(0), true
		if len(s) > 20 {
			frac, ok7 = digits(s[20 : len(s)-1])
			ok7 = ok7 && s[19] == '.'
			for n := len(s) - 21; n < 6; n++ {
				frac *= 10
			}
		}
		if ok1 && ok2 && ok3 && ok4 && ok5 && ok6 && ok7 && y >= 1970 && mo >= 1 && mo <= 12 && d >= 1 && d <= 28 && h < 24 && mi < 60 && se < 60 {
			if i := Instant((daysOf(y, mo, d)*86400+h*3600+mi*60+se)*1e6 + frac); i > 0 {
				return i, nil
			}
		}
	}
	return ParseInstant(string(s))
}

// daysOf is the inverse of civil (Hinnant's days_from_civil), for years from 1970.
func daysOf(y, m, d int64) int64 {
	if m <= 2 {
		y--
		m += 12
	}
	era := y / 400
	yoe := y - era*400
	doy := (153*(m-3)+2)/5 + d - 1
	doe := yoe*365 + yoe/4 - yoe/100 + doy
	return era*146097 + doe - 719468
}

func digits(s []byte) (v int64, ok bool) {
	for _, c := range s {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + int64(c-'0')
	}
	return v, len(s) > 0
}

// Period is a duration, as all JSON has it: a string such as 1h30m.
type Period time.Duration

// Append appends the one form of durations: that of Go, without the zero units at its end.
func (p Period) Append(dst []byte) []byte {
	s := time.Duration(p).String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-len("0s")]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-len("0m")]
	}
	return append(dst, s...)
}

func (p Period) String() string { return string(p.Append(nil)) }

// MarshalText is Append.
func (p Period) MarshalText() ([]byte, error) { return p.Append(nil), nil }

// UnmarshalText reads any duration of Go.
func (p *Period) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil {
		return errors.New("must be a duration such as 90s, 1h30m, 24h")
	}
	*p = Period(d)
	return nil
}
