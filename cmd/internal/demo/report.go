package demo

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Report is what the demo proved.
type Report struct {
	Campaigns       []string `json:"campaigns"`
	Claims          int      `json:"claims"`
	ClaimsPerSecond int      `json:"claims_per_second"`
	// Sync is how durable the server makes what it answers, as far as the caller knows.
	Sync     string    `json:"sync,omitempty"`
	Promises []Promise `json:"promises"`
	// Wrong lists what must not be, with codes and places. Empty if all promises hold.
	Wrong []string `json:"wrong,omitempty"`
	// Note says what could not be compared.
	Note string `json:"note,omitempty"`
}

// Promise is one line of the table: what is expected, and what each witness says. "" = not asked.
type Promise struct {
	Name     string `json:"promise"`
	Expected string `json:"expected"`
	Answers  string `json:"answers,omitempty"`
	Log      string `json:"log,omitempty"`
	SQL      string `json:"sql,omitempty"`
	OK       bool   `json:"ok"`
}

// OK says whether all promises hold.
func (r *Report) OK() bool {
	return len(r.Wrong) == 0 && !slices.ContainsFunc(r.Promises, func(p Promise) bool { return !p.OK })
}

const wrongShown = 20

func (d *show) report(l *ledger, t tables) *Report {
	r := &Report{Campaigns: []string{d.sale, d.brief, d.next}, Claims: d.asked, Note: t.missing}
	if s := d.took.Seconds(); s > 0 {
		r.ClaimsPerSecond = int(float64(d.asked) / s)
	}
	sale, brief, next := l.campaigns[d.sale], l.campaigns[d.brief], l.campaigns[d.next]

	claimed, soldOut, same, twice, missing := d.tally(sale)
	holders := min(1, len(l.holders))
	if l.shared > 0 {
		holders = 2 // or more; the ledger names the codes
	}
	redeemedLog, expired := 0, 0
	for _, a := range l.campaigns {
		for _, c := range a.coupons {
			redeemedLog += c.redeemed
		}
	}
	for _, c := range brief.coupons {
		if brief.status(c) == "expired" {
			expired++
		}
	}
	once, more := next.toldOnce()
	states := next.byState()

	line := func(name string, expected any, answers, log, sql any) {
		p := Promise{Name: name, Expected: text(expected), Answers: text(answers), Log: text(log), OK: true}
		if t.missing == "" {
			p.SQL = text(sql)
		}
		for _, said := range []string{p.Answers, p.Log, p.SQL} {
			p.OK = p.OK && (said == "" || said == p.Expected)
		}
		r.Promises = append(r.Promises, p)
	}
	line("coupons handed out", d.Codes, claimed, len(sale.coupons), t.coupons)
	line("distinct codes", d.Codes, d.distinctAnswers(), distinct(sale), t.distinct)
	line("holders of one code, at most", 1, nil, holders, t.holders)
	line("customers told: sold out", d.Customers-d.Codes, soldOut, nil, nil)
	line("asked twice, same answer both times", twice, same, nil, nil)
	line("answered claims missing from the log", 0, nil, missing, nil)
	line("coupons redeemed", d.redeem.done, d.redeem.done, redeemedLog, t.redeemed)
	line("redeemed more than once", 0, nil, l.again, t.twice)
	line("redeemed after they expired", 0, d.late[wire.StatusRedeemed], l.tooLate, t.late)
	line("redeemed too late, told: expired", min(100, d.Few), d.late[wire.StatusRefused+" "+string(wire.Expired)], nil, nil)
	line("expired while you watched", d.Few, nil, expired, t.byStatus["expired"])
	line("reminders fired", d.remindersKept(), nil, states["fired"], t.reminders["fired"])
	line("reminders cancelled before", d.Few-d.remindersKept(), nil, states["cancelled"], t.reminders["cancelled"])
	line("customers reminded exactly once", d.remindersKept(), nil, once, nil)
	line("customers reminded more than once", 0, nil, more, nil)
	byStatus := l.byStatus()
	for _, status := range []string{"claimed", "redeemed", "expired", "voided"} {
		line("coupons in status "+status, byStatus[status], nil, byStatus[status], t.byStatus[status])
	}

	r.Wrong = append(append(r.Wrong, l.wrong...), d.redeem.odd...)
	if len(r.Wrong) > wrongShown {
		r.Wrong = append(r.Wrong[:wrongShown:wrongShown], fmt.Sprintf("and %d more", len(r.Wrong)-wrongShown))
	}
	return r
}

// tally compares the answers to claims with each other and with the log.
func (d *show) tally(sale *account) (claimed, soldOut, same, twice, missing int) {
	inLog := map[string]string{}
	for _, c := range sale.coupons {
		inLog[c.customer] = c.code
	}
	for i, o := range d.first {
		switch {
		case o.Status == wire.StatusClaimed:
			claimed++
			if inLog[customer(i)] != o.Code {
				missing++
			}
		case o.Refusal == wire.SoldOut:
			soldOut++
		}
		if again := d.second[i]; again.Status != "" {
			twice++
			// Who was refused may not be given one later: nothing ever comes back to a campaign.
			if again.Status == o.Status && again.Code == o.Code && (o.Refused() || again.Repeat) {
				same++
			}
		}
	}
	return claimed, soldOut, same, twice, missing
}

func (d *show) distinctAnswers() int {
	codes := map[string]bool{}
	for _, o := range d.first {
		if o.Code != "" {
			codes[o.Code] = true
		}
	}
	return len(codes)
}

func distinct(a *account) int {
	codes := map[string]bool{}
	for _, c := range a.coupons {
		codes[c.code] = true
	}
	return len(codes)
}

func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case int:
		return strconv.Itoa(v)
	case string:
		return v
	}
	return fmt.Sprint(v)
}
