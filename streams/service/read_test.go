package service

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/settings"
)

// TestReads: settings and their history, the status and dead letters for an operator's key, and exports that it records. What
// is wrong is refused, and an answer that no message can hold is no silence.
func TestReads(t *testing.T) {
	r := newRig(t)
	var asked LetterQuery
	js, keys := managed(t, r, func(o *Options) {
		o.Status = func(context.Context) (any, error) { return map[string]int{"lanes": lanes}, nil }
		o.DeadLetters = func(_ context.Context, q LetterQuery) (any, error) {
			switch asked = q; q.State {
			case "bad":
				return nil, Invalid(errors.New("state: no such state"))
			case "away":
				return nil, errors.New("the tables are away")
			case "large":
				return strings.Repeat("x", 2<<20), nil
			}
			return map[string]string{"next": "n"}, nil
		}
	})
	log := audit.Open(js, nil)
	operator := r.key(t, keys, `{"name":"olga","role":"operator"}`)
	limited := r.key(t, keys, `{"name":"otto","role":"operator","campaigns":["summer"]}`)
	support := r.key(t, keys, `{"name":"sue","role":"support","codes":true}`)
	as := info("OPS", operator.ID)
	for i := range 3 {
		r.data(t, &settings.Change{}, "scrip.config.set", fmt.Sprintf(`{"setting":"reminder.rate","value":"%d"}`, 100+i), as...)
	}
	r.data(t, &settings.Change{}, "scrip.config.set", `{"setting":"reminder.batch","value":"200"}`, as...)

	var page SettingsPage
	if r.data(t, &page, "scrip.config.get", ``, as...); len(page.Settings) < 5 || page.Revision == 0 {
		t.Errorf("%+v", page)
	}
	if r.data(t, &page, "scrip.config.get", `{"setting":"reminder.rate"}`, as...); len(page.Settings) != 1 || page.Settings[0].Value != "102" || page.Settings[0].By != "olga" {
		t.Errorf("%+v", page)
	}
	var changes ChangesPage
	if r.data(t, &changes, "scrip.config.history", `{"setting":"reminder.rate","limit":2}`, as...); len(changes.Changes) != 2 || changes.LeftOut != 1 || changes.Changes[1].Value != "102" {
		t.Errorf("%+v", changes)
	}
	if r.data(t, &changes, "scrip.config.history", `{}`, as...); len(changes.Changes) != 4 || changes.LeftOut != 0 {
		t.Errorf("%+v", changes)
	}
	var status map[string]int
	if r.data(t, &status, "scrip.status.show", `{}`, as...); status["lanes"] != lanes {
		t.Errorf("%v", status)
	}
	var letters map[string]string
	if r.data(t, &letters, "scrip.deadletter.list", `{"stream":"commands","lane":1,"state":"open","limit":7,"before":"b"}`, as...); letters["next"] != "n" || asked.Stream != "commands" || asked.Lane == nil || *asked.Lane != 1 || asked.Limit != 7 || asked.Before != "b" {
		t.Errorf("%v, asked %+v", letters, asked)
	}
	var exported struct{ Campaign string }
	for id, campaign := range map[string]string{operator.ID: "winter", limited.ID: "summer"} {
		if r.data(t, &exported, "scrip.codes.export", `{"campaign":"`+campaign+`"}`, info("OPS", id)...); exported.Campaign != campaign {
			t.Errorf("%+v", exported)
		}
	}
	entries, _, err := log.Read(t.Context(), audit.Filter{Kind: audit.Export}, 10)
	if err != nil || len(entries) != 2 {
		t.Errorf("the audit stream has %+v, %v", entries, err)
	}
	for _, e := range entries {
		if want := map[string]string{"olga": "winter", "otto": "summer"}[e.Actor]; e.About != want || e.Action != audit.Coupons {
			t.Errorf("the audit stream has %+v", e)
		}
	}

	if none := string(r.request(t, "scrip.audit.list", `{"kind":"webhooks"}`, as...).Data); !strings.Contains(none, `"entries":[]`) {
		t.Error(none)
	}

	for _, bad := range []struct{ subject, body, want string }{
		{"scrip.config.get", `{"setting":"reminder.colour"}`, "reminder.colour"},
		{"scrip.config.get", `{"name":"x"}`, "name"},
		{"scrip.config.history", `{"limit":1001}`, "limit"},
		{"scrip.config.history", `{"limit":-1}`, "limit"},
		{"scrip.status.show", `{"lane":1}`, "lane"},
		{"scrip.codes.export", `{}`, "campaign"},
		{"scrip.codes.export", `{"campaign":"a b"}`, "campaign"},
		{"scrip.codes.export", `{"campaign":"winter","about":"x"}`, "about"},
		{"scrip.deadletter.list", `{"state":"bad"}`, "no such state"},
		{"scrip.deadletter.list", `{"state":"large"}`, "smaller limit"},
		{"scrip.deadletter.list", `{"lane":"x"}`, "lane"},
	} {
		if out := r.outcome(t, bad.subject, bad.body, as...); !out.Refused() || !strings.Contains(out.Message, bad.want) {
			t.Errorf("%s %s: %+v", bad.subject, bad.body, out)
		}
	}
	if why, _ := r.fails(t, "scrip.deadletter.list", `{"state":"away"}`, as...); !strings.Contains(why, "away") {
		t.Error(why)
	}
	for _, subject := range []string{"scrip.config.get", "scrip.config.history", "scrip.status.show", "scrip.deadletter.list", "scrip.codes.export"} {
		r.denied(t, subject, `{"campaign":"summer"}`, info("OPS", support.ID)...)
	}
	r.denied(t, "scrip.codes.export", `{"campaign":"winter"}`, info("OPS", limited.ID)...)
	r.denied(t, "scrip.codes.export", `{}`, info("OPS", limited.ID)...)
	r.denied(t, "scrip.status.show", ``, info("OPS", limited.ID)...)
}
