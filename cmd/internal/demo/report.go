package demo

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/seed-4a2410e3/scrip/domain/oracle"
	"github.com/seed-4a2410e3/scrip/domain/wire"
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

const wrongShown = 20

func (d *show) report(l *folded, t tables) *Report {
	r := &Report{Campaigns: []string{d.sale, d.brief, d.next}, Claims: d.sent, Note: t.missing}
	if s := d.took.Seconds(); s > 0 {
		r.ClaimsPerSecond = int(float64(d.sent) / s)
	}
	sale := l.campaign(d.sale)
	claimed, soldOut, same, twice, missing := d.tally(sale)
	redeemedLog, again, late := l.redemptions()
	expired := l.folds[d.brief].ByStatus()[wire.StatusExpired]
	once, more := l.publishedOnce(d.next)
	states := l.byState(d.next)

	line := func(name string, expected any, answers, log, sql any) {
		p := Promise{Name: name, Expected: text(expected), Answers: text(answers), Log: text(log), OK: true}
		if t.missing == "" {
			p.SQL = text(sql)
		}
		for _, value := range []string{p.Answers, p.Log, p.SQL} {
			p.OK = p.OK && (value == "" || value == p.Expected)
		}
		r.Promises = append(r.Promises, p)
	}
	line("coupons claimed", d.Codes, claimed, len(sale.Coupons), t.coupons)
	line("distinct codes", d.Codes, d.distinctAnswers(), distinct(sale), t.distinct)
	line("holders of one code, at most", 1, nil, l.holders(), t.holders)
	line("claims refused: sold out", d.Customers-d.Codes, soldOut, nil, nil)
	line("repeated claims, same answer", twice, same, nil, nil)
	line("answered claims missing from the log", 0, nil, missing, nil)
	line("coupons redeemed", d.redeem.done, d.redeem.done, redeemedLog, t.redeemed)
	line("redeemed more than once", 0, nil, again, t.twice)
	line("redeemed after they expired", 0, d.late[wire.StatusRedeemed], late, t.late)
	line("redeemed too late, refused: expired", min(100, d.Few), d.late[wire.StatusRefused+" "+string(wire.Expired)], nil, nil)
	line("coupons expired during the demo", d.Few, nil, expired, t.byStatus["expired"])
	line("reminders fired", d.remindersKept(), nil, states["fired"], t.reminders["fired"])
	line("reminders cancelled", d.Few-d.remindersKept(), nil, states["cancelled"], t.reminders["cancelled"])
	line("customers reminded exactly once", d.remindersKept(), nil, once, nil)
	line("customers reminded more than once", 0, nil, more, nil)
	byStatus := l.byStatus()
	for _, status := range []string{"claimed", "redeemed", "expired", "voided"} {
		line("coupons in status "+status, byStatus[status], nil, byStatus[status], t.byStatus[status])
	}

	r.Wrong = append(l.violations(), d.redeem.wrong...)
	if len(r.Wrong) > wrongShown {
		r.Wrong = append(r.Wrong[:wrongShown:wrongShown], fmt.Sprintf("and %d more", len(r.Wrong)-wrongShown))
	}
	return r
}

// tally compares the answers to claims with each other and with the log.
func (d *show) tally(sale *oracle.Campaign) (claimed, soldOut, same, twice, missing int) {
	inLog := map[string]string{}
	for _, k := range sale.Coupons {
		inLog[k.Customer] = k.Code
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
			// A refused customer may not get a coupon later: no coupon ever returns to a campaign.
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

func distinct(c *oracle.Campaign) int {
	codes := map[string]bool{}
	for _, k := range c.Coupons {
		codes[k.Code] = true
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
