package domain

import (
	"bytes"
	"unicode/utf8"
)

// A command message is decided whole within one step, and a step is one message of the event log, so what a message can
// make must have a bound. Most lines make one event that repeats them; what adds to that is here.
//
//	redeem, void     cancel up to MaxReminders reminders, an event each
//	update_campaign  repeats all settings
//	a bad line       is parked: quoted, with its reason
//	a refusal        costs a line per campaign and step, when the step is closed
const (
	costLine    = 400 // what a line's events have beyond its length: campaign, time, number, code; sold_out
	costParked  = 385 // a dead letter beside what it quotes
	costUpdate  = 1200
	costCancel  = 240
	costRefused = 100  // a commands.refused event beside campaign and counts
	costReason  = 16   // a count in it beside its name
	costAny     = 2048 // more than any one line costs beyond its length
	costClaim   = 150  // what coupon.claimed has beyond a claim that names its campaign: time, number, code, expiry
	costName    = 80   // a campaign that only the subject named
	costSoldOut = 250  // a campaign.sold_out event
)

// What a claim shows of itself, and of whether it names its campaign.
var (
	claimMark    = []byte(`"type":"claim"`)
	campaignMark = []byte(`"campaign":`)
)

// What a dead letter quotes, in bytes after escaping: the more lines a message has, the less of each.
const (
	maxReasonQuoted = 160
	maxQuoted       = 1024
	minQuoted       = 128
)

// size is how long Events will be after Close, at most.
func (s *Step) size() int { return len(s.Events) + s.closing }

// Fits reports whether a message with this payload leaves the step within [MaxStep]. One that does not fit belongs into a
// step of its own.
//
// It takes lines that look like claims for claims: a step that holds two full messages of them instead of one is worth a
// sixth of a hot lane's speed. A message of lines that only look like it may turn out larger; Add then refuses its own
// last lines as not durable, nobody else's.
func (s *Step) Fits(payload []byte) bool { return s.size()+s.cost(payload)+costAny <= MaxStep }

// cost is how many bytes of events a message makes, at most, if its lines are what they look like.
func (s *Step) cost(payload []byte) int {
	parked := costParked + quoteOf(payload)
	lines, cost, claims := 0, 0, 0
	for rest := payload; len(rest) > 0 && lines <= MaxMessageLines; {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte{'\n'})
		if !blank(line) {
			lines++
			if !bytes.Contains(line, claimMark) {
				cost += max(len(line)+costLine, parked)
				continue
			}
			claims++
			cost += len(line) + costClaim
			if !bytes.Contains(line, campaignMark) {
				cost += costName
			}
		}
	}
	cost += min(claims, len(s.lane.campaigns)) * costSoldOut
	if len(payload) > MaxMessage || lines == 0 || lines > MaxMessageLines {
		return parked
	}
	// Types are matched to the letter, so counting the words misses none.
	spent := bytes.Count(payload, []byte(`"redeem"`)) + bytes.Count(payload, []byte(`"void"`))
	set := s.lane.reminders + bytes.Count(payload, []byte(`"remind"`))
	cost += min(spent*MaxReminders, set) * costCancel
	return cost + bytes.Count(payload, []byte(`"update_campaign"`))*costUpdate
}

// quoteOf is how much a dead letter of this message may quote.
func quoteOf(payload []byte) int {
	lines := bytes.Count(payload, []byte{'\n'}) + 1
	return min(max(minQuoted*MaxMessageLines/lines, minQuoted), maxQuoted)
}

// quoted returns s, or if that has more than most bytes once it is escaped, as much of its beginning as has not.
func quoted[T string | []byte](s T, most int) string {
	const ellipsis = "…"
	var buf [8]byte
	size, fits := 0, 0 // fits: where to cut so that the ellipsis has room
	for i := 0; i < len(s); {
		_, width := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
		size += len(appendText(buf[:0], string(s[i:i+width]))) - 2
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
