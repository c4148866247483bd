package domain

import (
	"bytes"
	"unicode/utf8"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// A command message is decided within one step, and a step is one message of the event log, so the events of a message need
// a bound. Most lines make one event that repeats them. These are the additions:
//
//	redeem, void …   (Cancels in the table) cancel up to MaxReminders reminders, an event each
//	rollback         sets up to MaxReminders reminders again, unremind one, an event each
//	claim            names a void coupon that it replaces
//	update_campaign  repeats all settings
//	remind_due       drops and fires, an event each
//	a bad line       is parked: quoted, with its reason, the first maxParked of a step
//	a refusal        costs a line per campaign and step, when the step is closed
const (
	costLine      = 400 // what a line's events have beyond its length: campaign, time, number, code; sold_out
	costParked    = 385 // a dead letter beside what it quotes
	costUpdate    = 1200
	costCancel    = 260
	costRestore   = 400                                           // a reminder.set event of a rollback
	costDue       = 400                                           // a second reminders.due event
	costRefused   = 100                                           // a commands.refused event beside campaign and counts
	costReason    = 16                                            // a count in it beside its name
	costSample    = 16                                            // the names of campaigns that do not exist, beside the names
	costSampled   = 3                                             // one of them beside its name
	costAny       = 2048                                          // more than any one line costs beyond its length
	costClaim     = 150                                           // what coupon.claimed has beyond a claim that names its campaign: time, number, code, expiry
	costReplace   = 22                                            // the void coupon that it replaces; a coupon is replaced once
	costName      = 80                                            // a campaign that only the subject named
	costSoldOut   = 250 + costRequestID                           // a campaign.sold_out event
	costRequestID = len(`,"request_id":""`) + 2*wire.MaxRequestID // of an event that does not repeat its line
)

// eventsOfLine is the most events that one line makes: its own, those of the reminders of a coupon, and sold_out.
const eventsOfLine = 2 + wire.MaxReminders

// costOf is what a line's events have more if they carry the name of a person, or a request id, which may be escaped.
func costOf(text string) int {
	if text == "" {
		return 0
	}
	return eventsOfLine * (len(`,"request_id":""`) + 2*len(text))
}

// How the types of commands are written. Types are matched exactly, so a search for the words misses none.
var (
	typeMark      = []byte(`"type":"`)
	claimMark     = []byte(`claim"`)
	campaignMark  = []byte(`"campaign":`)
	requestIDMark = []byte(`"request_id":`)
	// typeMarks has the words by command.
	typeMarks = func() map[wire.CommandType][]byte {
		marks := make(map[wire.CommandType][]byte)
		for t := range wire.Commands() {
			marks[t] = []byte(t.String() + `"`)
		}
		return marks
	}()
)

// marked is how often a line has the word of command t.
func marked(line []byte, t wire.CommandType) int { return bytes.Count(line, typeMarks[t]) }

// What a dead letter quotes, in bytes after escaping: the more lines a message has, the less of each.
const (
	maxParked       = 100 // dead letters of a step, as in CONTRACT.md
	maxReasonQuoted = 160
	minQuoted       = 128
)

// costRest is the most bytes of the one dead letter for all lines beyond maxParked.
const costRest = costParked + minQuoted + maxReasonQuoted

// cost is how many bytes of events a message makes, at most, if its lines are what they look like. already is how many dead
// letters its step has.
func (l *Lane) cost(payload []byte, already int) int {
	newlines := bytes.Count(payload, newline)
	parked := costParked + quoteOf(newlines)
	if len(payload) > wire.MaxMessage {
		return parked
	}
	lines, cost, claims, bad := 0, 0, 0, 0 // bad: lines that may be
	again, more := 0, 0                    // reminders that may be set again; what an event of a reminder has more
	voided := l.voided                     // coupons that may be replaced
	spent, set := 0, l.reminders           // coupons that may be used up, reminders that may go with them
	in := lineReader{rest: payload}
	for line, ok := in.next(); ok; line, ok = in.next() {
		if lines++; lines > wire.MaxMessageLines {
			return parked
		}
		at := bytes.Index(line, typeMark)
		var kind []byte
		if at >= 0 {
			kind = line[at+len(typeMark):]
		}
		if bytes.HasPrefix(kind, claimMark) {
			claims++
			cost += len(line) + costClaim
			if !bytes.Contains(kind, campaignMark) && !bytes.Contains(line[:at], campaignMark) {
				cost += costName
			}
			continue
		}
		if more == 0 && bytes.Contains(line, requestIDMark) {
			more = costRequestID
		}
		if at < 0 { // unusual, or bad
			for t := range wire.Commands() {
				if t.Spec().Cancels {
					spent += marked(line, t)
				}
				if t.Spec().Voids {
					voided += marked(line, t)
				}
			}
			set += marked(line, wire.Remind)
			again += marked(line, wire.Rollback)*wire.MaxReminders + marked(line, wire.Unremind)
			cost += marked(line, wire.UpdateCampaign)*costUpdate + marked(line, wire.RemindDue)*costDue + marked(line, wire.Allot)*costSoldOut
		} else if end := bytes.IndexByte(kind, '"'); end >= 0 {
			t := wire.CommandNamed(kind[:end])
			if t.Spec().Cancels {
				spent++
			}
			if t.Spec().Voids {
				voided++
			}
			switch t {
			case wire.Remind:
				set++
			case wire.Rollback:
				again += wire.MaxReminders
			case wire.Unremind:
				again++
			case wire.UpdateCampaign:
				cost += costUpdate
			case wire.Allot:
				cost += costSoldOut
			case wire.RemindDue:
				cost += costDue
			}
		}
		bad++
		cost += len(line) + costLine
	}
	if lines == 0 {
		return parked
	}
	cost += min(bad, maxParked-already)*(parked-costLine) + costRest
	cost += min(claims, len(l.campaigns))*costSoldOut + min(claims, voided)*costReplace
	// What is set again was cancelled before, by this message or an earlier one, and may be cancelled again.
	again = min(again, l.parked+min(spent*wire.MaxReminders, set+again))
	return cost + min(spent*wire.MaxReminders, set+again)*(costCancel+more) + again*(costRestore+more)
}

// lineReader finds the lines of a message that are not empty.
type lineReader struct {
	rest   []byte
	number uint32
}

func (r *lineReader) next() (line []byte, ok bool) {
	for len(r.rest) > 0 {
		if end := bytes.IndexByte(r.rest, '\n'); end >= 0 {
			line, r.rest = r.rest[:end], r.rest[end+1:]
		} else {
			line, r.rest = r.rest, nil
		}
		r.number++
		if !blank(line) {
			return line, true
		}
	}
	return nil, false
}

// quoteOf is how much a dead letter of a message with so many newlines may quote.
func quoteOf(newlines int) int {
	return min(max(minQuoted*wire.MaxMessageLines/(newlines+1), minQuoted), MaxQuoted)
}

// quoted returns s, or if that has more than most bytes once it is escaped, as much of its beginning as has not.
func quoted[T string | []byte](s T, most int) string {
	const ellipsis = "…"
	var buf [8]byte
	size, fits := 0, 0 // fits: where to cut so that the ellipsis has room
	for i := 0; i < len(s); {
		_, width := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
		size += len(wire.AppendText(buf[:0], string(s[i:i+width]))) - 2
		if size > most {
			return string(s[:fits]) + ellipsis
		}
		i += width
		if size <= most-len(ellipsis) {
			fits = i
		}
	}
	return string(s)
}

func blank(line []byte) bool {
	for _, c := range line {
		if c != ' ' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}
