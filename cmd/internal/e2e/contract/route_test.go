package contract

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// route is a way for a command to get into the log. All give the same answers.
type route struct {
	name string
	do   func(t *testing.T, r *rig, campaign, kind, id, fields string) []byte
}

var routes = []route{
	{"campaign subjects", bySubject},
	{"lane subject", byLane},
	{"requests", byRequest},
}

var producers = []string{"claim", "redeem", "rollback", "remind", "unremind"}

// bySubject publishes what producers may on scrip.cmd.<campaign>, the rest on scrip.admin.<campaign>.
func bySubject(t *testing.T, r *rig, campaign, kind, id, fields string) []byte {
	t.Helper()
	subject := "scrip.admin." + campaign
	if slices.Contains(producers, kind) {
		subject = "scrip.cmd." + campaign
	}
	return r.one(t, subject, fmt.Sprintf(`{"id":"%s","type":"%s"%s}`, id, kind, more(fields)))
}

// byLane publishes on scrip.lane.<lane>.cmd, where each line names its campaign.
func byLane(t *testing.T, r *rig, campaign, kind, id, fields string) []byte {
	t.Helper()
	if !strings.Contains(fields, `"campaign":`) {
		fields = fmt.Sprintf(`"campaign":"%s"%s`, campaign, more(fields))
	}
	return r.one(t, fmt.Sprintf("scrip.lane.%d.cmd", r.lane(campaign)), fmt.Sprintf(`{"id":"%s","type":"%s",%s}`, id, kind, fields))
}

// byRequest sends a request to the micro service.
func byRequest(t *testing.T, r *rig, campaign, kind, id, fields string) []byte {
	t.Helper()
	switch operation, ofCampaign := strings.CutSuffix(kind, "_campaign"); {
	case ofCampaign:
		return r.request(t, "scrip.campaign."+operation, fmt.Sprintf(`{"id":"%s","campaign":"%s"%s}`, id, campaign, more(fields)))
	case kind == "claim" || kind == "remind" || kind == "unremind":
		return r.request(t, "scrip."+kind+"."+campaign, fmt.Sprintf(`{"id":"%s"%s}`, id, more(fields)))
	}
	// A code says which campaign it is of.
	return r.request(t, "scrip."+kind, fmt.Sprintf(`{"id":"%s"%s}`, id, more(fields)))
}

func more(fields string) string {
	if fields == "" {
		return ""
	}
	return "," + fields
}

// step is one command of a story: the request, its outcome, the events, and the rows of the tables afterwards.
// $c is the campaign, $1 $2 … the codes of the coupons claimed so far.
type step struct {
	kind, id, fields string
	outcome          string
	events           string   // patterns, one a line; none for a refusal or a repeat
	row              string   // of the campaign, if it is looked at
	coupons          []string // rows of all coupons, if they are looked at
}

// play runs a story on every route.
func play(t *testing.T, story []step) {
	r := server(t)
	for _, via := range routes {
		t.Run(via.name, func(t *testing.T) {
			t.Parallel()
			p := player{r: r, via: via, campaign: r.name()}
			for _, s := range story {
				if !t.Failed() {
					p.step(t, s)
				}
			}
		})
	}
}

type player struct {
	r        *rig
	via      route
	campaign string
	codes    []string
	events   int // event lines so far
}

func (p *player) step(t *testing.T, s step) {
	t.Helper()
	outcome := p.via.do(t, p.r, p.campaign, s.kind, s.id, p.fill(s.fields))
	answer := parse(t, outcome)
	if code, _ := answer["code"].(string); answer["status"] == "claimed" && answer["repeat"] == nil {
		p.codes = append(p.codes, code)
	}
	match(t, outcome, p.fill(s.outcome))
	want := strings.Fields(p.fill(s.events))
	p.events += len(want)
	// An event is published before the outcome leaves, but comes on another subscription.
	received := p.r.events(t, p.campaign, "", p.events)
	if len(received) != p.events {
		t.Errorf("%s %s: %d event lines, want %d:\n%s", s.kind, s.id, len(received)-p.events+len(want), len(want), received[p.events-len(want):])
		return
	}
	for i, pattern := range want {
		match(t, received[p.events-len(want)+i], pattern)
	}
	if s.row != "" {
		matchRows(t, p.r.rows(t, `SELECT status, codes, claimed, redeemed, expired, voided FROM scrip.campaign WHERE campaign = $1`, p.campaign), s.row)
	}
	if s.coupons != nil {
		var patterns []string
		for _, pattern := range s.coupons {
			patterns = append(patterns, p.fill(pattern))
		}
		matchRows(t, p.r.rows(t, `SELECT n, code, customer_id, status, expires_at, redeemed_count, redeemed_at FROM scrip.coupon WHERE campaign = $1 ORDER BY n`, p.campaign), patterns...)
	}
}

func (p *player) fill(text string) string {
	pairs := []string{"$c", p.campaign}
	for i, code := range p.codes {
		pairs = append(pairs, fmt.Sprintf("$%d", i+1), code)
	}
	return fill(text, pairs...)
}
