package settings

import (
	"fmt"
	"time"
)

// Quiet are hours of each day in which a customer gets no reminder: from From up to To, in minutes of the day as a customer's
// clock shows them, over midnight if To is before From. From equal to To is none.
type Quiet struct{ From, To int }

// off is the text of no quiet hours.
const off = "off"

func (q Quiet) String() string {
	if q.From == q.To {
		return off
	}
	return fmt.Sprintf("%02d:%02d-%02d:%02d", q.From/60, q.From%60, q.To/60, q.To%60)
}

// parseQuiet reads what String writes.
func parseQuiet(text string) (q Quiet, ok bool) {
	if text == off {
		return q, true
	}
	const clock = "15:04"
	if len(text) != 2*len(clock)+1 || text[len(clock)] != '-' {
		return q, false
	}
	from, err := time.Parse(clock, text[:len(clock)])
	to, err2 := time.Parse(clock, text[len(clock)+1:])
	q = Quiet{from.Hour()*60 + from.Minute(), to.Hour()*60 + to.Minute()}
	return q, err == nil && err2 == nil && q.From != q.To
}

// End returns when the quiet hours in which t lies end, in t's zone; ok is false if t lies in none. A day on which clocks are set
// has the hours that its clocks show: what is skipped is shorter, and what comes twice is quiet twice.
func (q Quiet) End(t time.Time) (end time.Time, ok bool) {
	minute := t.Hour()*60 + t.Minute()
	day := t.Day()
	switch {
	case q.From < q.To && q.From <= minute && minute < q.To:
	case q.From > q.To && minute >= q.From:
		day++
	case q.From > q.To && minute < q.To:
	default:
		return t, false
	}
	end = time.Date(t.Year(), t.Month(), day, q.To/60, q.To%60, 0, 0, t.Location())
	// time.Date takes one of two where an hour comes twice: the first that is ahead counts.
	if first := end.Add(-time.Hour); first.After(t) && first.Hour() == end.Hour() {
		end = first
	}
	if !end.After(t) {
		end = end.Add(time.Hour)
	}
	return end, true
}
