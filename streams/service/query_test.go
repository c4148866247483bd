package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func TestBadInputAtEveryQueryEndpoint(t *testing.T) {
	r := newRig(t)
	r.serve(t, Options{})
	for i := range endpoints {
		e := &endpoints[i]
		if e.query == nil {
			continue
		}
		bad := map[string]string{
			`hello`:            "JSON object",
			`null`:             "JSON object",
			`[]`:               "JSON object",
			`{"colour":"red"}`: "colour: unknown field",
			"{\"x\":\"\xff\"}": "UTF-8",
			`{"Code":"x"}`:     "Code: unknown field",
			`{"` + strings.Repeat("x", wire.MaxLine) + `":1}`: "at most 16384",
		}
		for i := range e.query.fields {
			field := e.query.fields[i].Name
			if field == "after" {
				bad[`{"after":"`+strings.Repeat("x", 1025)+`"}`] = "after: has 1025 bytes"
			}
			if field == "n" {
				for _, n := range []string{"0", "null", `"7"`, "1000000001", "1.5"} {
					bad[`{"n":`+n+`}`] = "n: must be a whole number from 1"
				}
				bad[`{"n":7}`] = "campaign: missing"
				bad[`{"n":7,"campaign":"summer","code":"x"}`] = "code: given with n"
				continue
			}
			if field == "history" {
				for _, v := range []string{"null", "1", `"true"`} {
					bad[`{"history":`+v+`}`] = "history: must be true or false"
				}
				continue
			}
			if field == "from_n" {
				bad[`{"from_n":0}`] = "from_n: must be a whole number from 1"
				bad[`{"campaign":"summer","from_n":7}`] = "batch: missing"
				continue
			}
			if field == "limit" {
				bad[fmt.Sprintf(`{"limit":%d}`, e.query.fields[i].Most+1)] = fmt.Sprintf("limit: must be a whole number from 1 to %d", e.query.fields[i].Most)
				bad[`{"limit":0}`] = "limit: must be a whole number"
				bad[`{"limit":"9"}`] = "limit: must be a whole number"
				continue
			}
			bad[`{"`+field+`":7}`] = field + ": must be a string"
			bad[`{"`+field+`":null}`] = field + ": must be a string"
			if e.query.fields[i].Required {
				if bad[`{}`] == "" { // the first one
					bad[`{}`] = field + ": missing"
				}
				bad[`{"`+field+`":""}`] = field + ": must"
			}
			bad[`{"`+field+`":"\u0007"}`] = field + ": must"
			if field != "after" {
				bad[`{"`+field+`":"`+strings.Repeat("x", 129)+`"}`] = field + ": "
			}
		}
		for body, want := range bad {
			out := r.outcome(t, e.subject, body)
			if out.Refusal != wire.Invalid || !strings.Contains(out.Message, want) {
				t.Errorf("%s %.60s: answered %+v, expected invalid with %q", e.subject, body, out, want)
			}
		}
	}
}

func TestQueriesGoToTheRightLane(t *testing.T) {
	r := newRig(t)
	r.serve(t, Options{})
	for lane := range lanes {
		r.lane(t, lane, func(q query) string {
			if q.Campaign == "absent" {
				return `{"id":"","status":"refused","refusal":"campaign_not_found","message":"none"}`
			}
			if q.Query == "coupon.validate" {
				return fmt.Sprintf(`{"id":"","status":"redeemed","campaign":"%d","order_id":%q,"customer_id":%q}`, lane, q.OrderID, q.CustomerID)
			}
			return fmt.Sprintf(`{"data":{"campaign":"%s","n":%d}}`, q.Campaign, lane)
		})
	}
	for _, campaign := range []string{"summer", "winter", "spring", "autumn"} {
		reply := r.request(t, "scrip.campaign.show", `{"campaign":"`+campaign+`"}`)
		if want := fmt.Sprintf(`{"data":{"campaign":"%s","n":%d}}`, campaign, topology.LaneOf(campaign, lanes)); string(reply.Data) != want {
			t.Errorf("campaign %s: %s, expected %s", campaign, reply.Data, want)
		}
	}
	for number := range uint32(4) {
		out := r.outcome(t, "scrip.coupon.validate", `{"code":"`+r.generated(number, 9)+`","order_id":"o","customer_id":"c"}`)
		if out.Campaign != fmt.Sprint(number%lanes) || out.OrderID != "o" || out.CustomerID != "c" {
			t.Errorf("campaign number %d: %+v", number, out)
		}
	}
	if out := r.outcome(t, "scrip.campaign.show", `{"campaign":"absent"}`); out.Refusal != wire.CampaignNotFound {
		t.Errorf("an absent campaign was answered %+v", out)
	}
	for _, subject := range []string{"scrip.coupon.validate", "scrip.coupon.show"} {
		if out := r.outcome(t, subject, `{"code":"MY-OWN"}`); out.Refusal != wire.CodeNotFound {
			t.Errorf("%s of a code that leads nowhere: %+v", subject, out)
		}
	}
}

func TestALaneWithoutOwnerIsAnError(t *testing.T) {
	r := newRig(t)
	r.serve(t, Options{})
	// The body is not empty: several JetStream APIs take an empty message as a request.
	if description, body := r.fails(t, "scrip.campaign.show", `{"campaign":"summer"}`); len(body) == 0 || !strings.Contains(description, "has no owner") || !strings.Contains(description, "retry") {
		t.Errorf("%q %v", description, body)
	}
	r.lane(t, 0, func(query) string { return `{"data":[]}` })
	r.lane(t, 1, func(query) string { return "" }) // it does not answer
	streamtest.Eventually(t, "lane 0 answers within the time, and lane 1 does not", func() bool {
		description, _ := r.fails(t, "scrip.campaign.list", "", HeaderTimeout, "200ms")
		return strings.Contains(description, "lane 1 did not answer")
	})
}

// TestTheListMergesLanesAndPages. Where a lane cut its list short a page ends: after it campaigns would be missing.
func TestTheListMergesLanesAndPages(t *testing.T) {
	r := newRig(t)
	r.serve(t, Options{})
	var names []string
	for i := range 25 {
		names = append(names, fmt.Sprintf("c%02d", i))
	}
	var most atomic.Int64 // that lane 0 lists
	for lane := range lanes {
		r.lane(t, lane, func(q query) string {
			if q.WaitMS <= 0 || q.WaitMS > queryWait.Milliseconds() {
				t.Errorf("the lane is given %d ms", q.WaitMS)
			}
			list, more := []map[string]any{}, false
			for _, name := range names {
				switch {
				case topology.LaneOf(name, lanes) != lane || name <= q.After || len(list) >= q.Limit:
				case lane == 0 && len(list) >= int(most.Load()):
					more = true
				default:
					list = append(list, map[string]any{"campaign": name, "n": 1})
				}
			}
			data, err := json.Marshal(map[string]any{"data": list, "more": more})
			if err != nil {
				t.Error(err)
			}
			return string(data)
		})
	}
	for _, short := range []int64{100, 2, 1} {
		most.Store(short)
		for _, limit := range []int{0, 1, 4, 5, 24, 25, 26} {
			var got []string
			for _, p := range r.pages(t, "scrip.campaign.list", map[string]any{"limit": limit}) {
				for _, name := range p.campaigns(t) {
					got = append(got, strings.TrimSuffix(name, "1"))
				}
			}
			if !slices.Equal(got, names) {
				t.Errorf("limit %d, at most %d of a lane: listed %v", limit, short, got)
			}
		}
		if p := r.page(t, "scrip.customer.show", map[string]any{"customer_id": "c"}); (p.Next != "") != (short < 100) {
			t.Errorf("at most %d of a lane: next %q", short, p.Next)
		}
	}
}

// TestHistoryIsAnExtra: a look-up has what happened where it is requested, and is answered while the tables are away. Else it reads no
// table, and so nothing of the log.
func TestHistoryIsAnExtra(t *testing.T) {
	r := newRig(t)
	for lane := range lanes {
		r.lane(t, lane, func(q query) string {
			if q.History {
				t.Errorf("a lane is sent %+v", q)
			}
			if q.Query == showCustomer.name {
				return fmt.Sprintf(`{"data":[{"campaign":"%d","n":1}]}`, 9-lane)
			}
			if q.Code == "ABSENT" {
				return `{"id":"","status":"refused","refusal":"code_not_found"}`
			}
			return `{"data":{"campaign":"summer","n":7}}`
		})
	}
	var reads atomic.Int64
	tables := func(err error) History {
		return history(func(of string, _ int, _ string) (HistoryPage, error) {
			reads.Add(1)
			return HistoryPage{Entries: []HistoryEntry{{JSON: fmt.Appendf(nil, "%q", of), Before: "1"}}}, err
		})
	}
	for _, test := range []struct {
		name             string
		history          History
		coupon, customer string
	}{
		{"Present", tables(nil), `"history":["summer 7"]`, `"history":["c1"]`},
		{"Away", tables(errors.New(`connection "refused"`)),
			`"history_unavailable":"the read tables do not answer: connection \"refused\""`,
			`"history_unavailable":"the read tables do not answer: connection \"refused\""`},
		{"None", nil, `"history_unavailable":"this server has no read tables"`,
			`"history_unavailable":"this server has no read tables"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, stop := r.serve(t, Options{History: test.history})
			defer stop()
			before := reads.Load()
			for history, with := range map[string]bool{"": false, `,"history":false`: false, `,"history":true`: true} {
				coupon, customer := "", ""
				if with {
					coupon, customer = ","+test.coupon, ","+test.customer
				}
				reply := r.request(t, "scrip.coupon.show", `{"code":"X","campaign":"summer"`+history+`}`)
				if want := `{"data":{"campaign":"summer","n":7` + coupon + `}}`; string(reply.Data) != want {
					t.Errorf("the coupon: %s, expected %s", reply.Data, want)
				}
				reply = r.request(t, "scrip.customer.show", `{"customer_id":"c1"`+history+`}`)
				if want := `{"data":{"customer_id":"c1","items":[{"campaign":"8","n":1},{"campaign":"9","n":1}]` + customer + `}}`; string(reply.Data) != want {
					t.Errorf("the customer: %s, expected %s", reply.Data, want)
				}
			}
			if n := reads.Load() - before; test.history != nil && n != 2 {
				t.Errorf("the tables were read %d times for two look-ups with history, and four without", n)
			}
			if out := r.outcome(t, "scrip.coupon.show", `{"code":"ABSENT","campaign":"summer"}`); out.Refusal != wire.CodeNotFound {
				t.Errorf("an absent coupon: %+v", out)
			}
		})
	}
}

// TestQueriesHaveTheBoundsOfCommands: the tags of a query are numbers of the contract.
func TestQueriesHaveTheBoundsOfCommands(t *testing.T) {
	for name, most := range map[string]int{"ID": wire.MaxCommandID, "Campaign": wire.MaxCampaignName, "Code": wire.MaxCodeInput,
		"CustomerID": wire.MaxCustomerID, "OrderID": wire.MaxOrderID, "N": wire.MaxCodes} {
		field, _ := reflect.TypeFor[query]().FieldByName(name)
		if tag := field.Tag; tag.Get("maxLength")+tag.Get("maximum") != fmt.Sprint(most) {
			t.Errorf("%s: %s, want %d", name, tag, most)
		}
	}
}
