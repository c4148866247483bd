package demo

import (
	"fmt"
	"slices"
	"strconv"
)

// Report has the results of the checks.
type Report struct {
	Campaigns       []string `json:"campaigns"`
	Claims          int      `json:"claims"`
	ClaimsPerSecond int      `json:"claims_per_second"`
	// Sync is the server's --sync, "" if the caller does not know it.
	Sync     string    `json:"sync,omitempty"`
	Promises []Promise `json:"promises"`
	// Wrong lists violations, with codes and positions. Empty if all promises hold.
	Wrong []string `json:"wrong,omitempty"`
	// Note is why SQL was not compared.
	Note string `json:"note,omitempty"`
}

// Promise is one line of the table: the expected value, and that of each source. "" = not checked.
type Promise struct {
	Name     string `json:"promise"`
	Expected string `json:"expected"`
	Answers  string `json:"answers,omitempty"`
	Log      string `json:"log,omitempty"`
	SQL      string `json:"sql,omitempty"`
	OK       bool   `json:"ok"`
}

// OK is true if all promises hold.
func (r *Report) OK() bool {
	return len(r.Wrong) == 0 && !slices.ContainsFunc(r.Promises, func(p Promise) bool { return !p.OK })
}

// counts are numbers of one source, by the promise that they belong to; a missing one is 0.
type counts map[string]int

// The sources.
const (
	inAnswers = 1 << iota
	inLog
	inSQL
)

// promise is a number that is expected of some sources.
type promise struct {
	name     string
	expected int
	sources  int
}

func (d *show) promises() []promise {
	cancelled := share(d.few, everyTenth)
	return []promise{
		{"coupons claimed", d.Codes, inAnswers | inLog | inSQL},
		{"distinct codes", d.Codes, inAnswers | inLog | inSQL},
		{"holders of one code, at most", 1, inLog | inSQL},
		{"claims refused: sold out", d.Customers - d.Codes, inAnswers},
		{"repeated claims, same answer", share(d.Customers, 3), inAnswers},
		{"answered claims missing from the log", 0, inLog},
		{"coupons redeemed", d.redeemed, inAnswers | inLog | inSQL},
		{"redeemed again, same answer", share(d.redeemed, 8), inAnswers},
		{"redeemed for another order, refused", share(d.redeemed-1, 8), inAnswers},
		{"redeemed more than once", 0, inLog | inSQL},
		{"redeemed too late, refused: expired", share(d.few, 5), inAnswers},
		{"redeemed after they expired", 0, inLog | inSQL},
		{"reminders fired", d.few - cancelled, inLog | inSQL},
		{"reminders cancelled", cancelled, inLog | inSQL},
		{"customers reminded exactly once", d.few - cancelled, inLog},
		{"customers reminded more than once", 0, inLog},
		{"coupons in status claimed", d.Codes - d.redeemed, inLog | inSQL},
		{"coupons in status redeemed", d.redeemed, inLog | inSQL},
		{"coupons in status expired", d.few, inLog | inSQL},
		{"coupons in status voided", 0, inLog | inSQL},
	}
}

// holds is true if a source has all that is expected of it.
func (d *show) holds(source int, have counts) bool {
	return !slices.ContainsFunc(d.promises(), func(p promise) bool { return p.sources&source != 0 && have[p.name] != p.expected })
}

const wrongShown = 20

func (d *show) report(sql counts, missing string) *Report {
	r := &Report{Campaigns: []string{d.sale, d.brief, d.next}, Claims: d.sent, Note: missing, Wrong: append(d.log.Violations, d.wrong...)}
	if s := d.took.Seconds(); s > 0 {
		r.ClaimsPerSecond = int(float64(d.sent) / s)
	}
	log := d.countLog()
	for _, p := range d.promises() {
		line := Promise{Name: p.name, Expected: strconv.Itoa(p.expected), OK: true}
		for _, s := range []struct {
			source int
			have   counts
			text   *string
		}{{inAnswers, d.answers, &line.Answers}, {inLog, log, &line.Log}, {inSQL, sql, &line.SQL}} {
			if p.sources&s.source != 0 && s.have != nil {
				*s.text = strconv.Itoa(s.have[p.name])
				line.OK = line.OK && *s.text == line.Expected
			}
		}
		r.Promises = append(r.Promises, line)
	}
	if len(r.Wrong) > wrongShown {
		r.Wrong = append(r.Wrong[:wrongShown:wrongShown], fmt.Sprintf("and %d more", len(r.Wrong)-wrongShown))
	}
	return r
}
