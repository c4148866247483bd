package domain

import (
	"errors"
	"math"
	"time"
)

// Instant is a point in time in microseconds since 1970-01-01T00:00:00Z. Zero means "none". Microseconds because that
// is what PostgreSQL keeps: a finer time would be another time after a rebuild.
type Instant int64

// Never sorts after every real instant: the due time of what has none.
const Never Instant = math.MaxInt64

// maxInstant is the last microsecond of the year 9999, the last one RFC 3339 can write.
const maxInstant Instant = 253402300799_999999

// At converts t, truncated to microseconds.
func At(t time.Time) Instant { return Instant(t.UnixMicro()) }

// Time converts back, in UTC.
func (i Instant) Time() time.Time { return time.UnixMicro(int64(i)).UTC() }

// Add returns i + d, not beyond the year 9999.
func (i Instant) Add(d time.Duration) Instant {
	sum := i + Instant(d/time.Microsecond)
	if d > 0 && (sum < i || sum > maxInstant) {
		return maxInstant
	}
	return sum
}

// roundUp returns the first multiple of unit at or after i.
func (i Instant) roundUp(unit time.Duration) Instant {
	u := Instant(unit / time.Microsecond)
	up := (i + u - 1) / u * u
	if up > maxInstant {
		return maxInstant
	}
	return up
}

// String formats i as RFC 3339 in UTC with up to six decimals.
func (i Instant) String() string { return string(i.append(nil)) }

func (i Instant) append(dst []byte) []byte {
	// By hand because every event line carries one: time.AppendFormat costs four times as much.
	secs, micros := int64(i)/1e6, int64(i)%1e6
	if micros < 0 {
		secs, micros = secs-1, micros+1e6
	}
	days, rest := secs/86400, secs%86400
	if rest < 0 {
		days, rest = days-1, rest+86400
	}
	y, m, d := civil(days)
	dst = appendPadded(dst, int64(y), 4)
	dst = append(dst, '-')
	dst = appendPadded(dst, int64(m), 2)
	dst = append(dst, '-')
	dst = appendPadded(dst, int64(d), 2)
	dst = append(dst, 'T')
	dst = appendPadded(dst, rest/3600, 2)
	dst = append(dst, ':')
	dst = appendPadded(dst, rest/60%60, 2)
	dst = append(dst, ':')
	dst = appendPadded(dst, rest%60, 2)
	if micros != 0 {
		dst = append(dst, '.')
		dst = appendPadded(dst, micros, 6)
		for dst[len(dst)-1] == '0' {
			dst = dst[:len(dst)-1]
		}
	}
	return append(dst, 'Z')
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

func appendPadded(dst []byte, v int64, width int) []byte {
	var buf [20]byte
	n := len(buf)
	for width > 0 || v > 0 {
		n--
		buf[n] = byte('0' + v%10)
		v /= 10
		width--
	}
	return append(dst, buf[n:]...)
}

// ParseInstant reads an RFC 3339 time in any zone, truncated to microseconds, from 1970 (exclusive) to 9999.
func ParseInstant(s string) (Instant, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return 0, errors.New("must be an RFC 3339 time such as 2026-11-27T00:00:00Z")
	}
	if i := At(t); i > 0 && i <= maxInstant {
		return i, nil
	}
	return 0, errors.New("must lie between the years 1970 and 9999")
}

// parseStamp reads what append wrote, and falls back to ParseInstant for anything else.
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
