package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/cmd/internal/api"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// uses is a use of each action, in an order in which each has what it needs: the action, its entry in the audit stream, - = none,
// and its fields. $… is what the door has of its own, or the id of an earlier answer.
const uses = `
access.create        keys:create          {"name":"$name","role":"support"}
access.list          -                    {"limit":1}
access.show          -                    {"key":"$key"}
access.rotate        keys:rotate          {"key":"$key","overlap":"1h"}
access.revoke        keys:revoke          {"key":"$key"}
config.set           settings:set         {"settings":{"reminder.batch":77,"reminder.pause":{"$campaign":true}}}
config.get           -                    {"setting":"reminder.batch"}
config.changes       -                    {"setting":"reminder.batch"}
audit.list           -                    {"kind":"keys","limit":1}
codes.export         export:codes         {"campaign":"$campaign"}
reminder.list        lookup:reminders     {"campaign":"$campaign","state":"pending"}
optout.add           optouts:add          {"customer_id":"$name","reason":"letter"}
optout.show          -                    {"customer_id":"$name"}
optout.remove        optouts:remove       {"customer_id":"$name"}
status.show          -                    {}
deadletter.list      lookup:deadletters   {"limit":1}
deadletter.groups    -                    {}
deadletter.show      lookup:deadletters   {"id":"$letter"}
deadletter.discard   deadletters:discard  {"ids":["$letter"],"note":"noise"}
deadletter.discard   deadletters:reopen   {"ids":["$letter"],"undo":true}
deadletter.retry     deadletters:retry    {"id":"$letter","lines":["{\"type\":\"claim\",\"campaign\":\"$campaign\",\"customer_id\":\"$name\"}"]}
webhook.create       webhooks:create      {"url":"$url","types":["coupon.*"],"rate":9}
webhook.list         -                    {}
webhook.update       webhooks:update      {"webhook":"$hook","batch":7}
webhook.pause        webhooks:pause       {"webhook":"$hook"}
webhook.resume       webhooks:resume      {"webhook":"$hook"}
webhook.rotate       webhooks:rotate      {"webhook":"$hook"}
webhook.replay       webhooks:replay      {"webhook":"$hook","from":"2020-01-01T00:00:00Z"}
webhook.test         webhooks:test        {"webhook":"$hook"}
webhook.show         -                    {"webhook":"$hook"}
webhook.deadletters  -                    {"webhook":"$hook"}
webhook.retry        webhooks:retry       {"webhook":"$hook"}
webhook.rehearse     webhooks:rehearse    {"webhook":"$hook","fail":1}
webhook.attempts     -                    {"webhook":"$hook"}
webhook.delete       webhooks:delete      {"webhook":"$hook"}
rebuild.start        jobs:rebuild.start   {}
rebuild.undo         jobs:rebuild.undo    {}
rebuild.drop         jobs:rebuild.drop    {}
backup.start         jobs:backup.start    {"name":"$name"}
verify.start         jobs:verify.start    {"campaign":"$campaign"}
coupon.list          lookup:coupons       {"customer_id":"nobody"}
coupons.void         -                    {"campaign":"$campaign","all":true,"dry_run":true}
coupons.extend       jobs:coupons.extend  {"campaign":"$campaign","n":[1],"most":1,"expires_at":"2099-01-01T00:00:00Z"}
campaign.clone       -                    {"campaign":"$campaign","to":"$name-clone"}
campaign.diff        -                    {"campaign":"$campaign","with":"$name-clone"}
campaign.statistics  -                    {"campaign":"$campaign","attribute":"none"}
campaign.changes     -                    {"campaign":"$campaign"}
due.list             -                    {}
overview.show        -                    {}
log.show             -                    {}
command.show         -                    {"id":"none","campaign":"$campaign"}
sender.list          -                    {}
sender.deadletters   -                    {"sender":"mobile"}
sender.discard       deadletters:discard  {"sender":"mobile","all":true}
job.show             -                    {"id":"$job"}
job.list             -                    {}
job.stop             -                    {"id":"$job"}
`

// refusals are requests that every door refuses with the same code and text, and no entry: the action, the code, the fields.
const refusals = `
access.create        malformed     {"name":"x"}
access.create        invalid       {"name":"x","role":"admin"}
access.create        invalid       {"name":"x","role":"producer","rate":0}
access.create        invalid       {"name":"x","role":"producer","campaigns":"summer"}
access.create        name_taken    {"name":"$me","role":"support"}
access.list          invalid       {"limit":1001}
access.list          invalid       {"after":"none"}
access.rotate        invalid       {"key":"none","overlap":"soon"}
access.rotate        not_found     {"key":"none"}
access.revoke        not_found     {"key":"none"}
config.get           invalid       {"setting":"reminder.colour"}
config.set           invalid       {"settings":{"reminder.rate":-1}}
config.set           invalid       {"settings":{}}
config.set           version_mismatch {"settings":{"reminder.rate":1},"version":999}
config.set           campaign_not_found {"settings":{"reminder.pause":{"none":true}}}
config.changes       invalid       {"limit":0}
audit.list           invalid       {"kind":"theft"}
audit.list           invalid       {"since":"yesterday"}
reminder.list        invalid       {"campaign":"$campaign","state":"lost"}
optout.add           invalid       {"customer_id":"ann","reason":5}
deadletter.list      invalid       {"state":"lost"}
deadletter.list      invalid       {"stream":"letters"}
deadletter.list      invalid       {"after":"x"}
deadletter.show      invalid       {"id":"17"}
deadletter.show      not_found     {"id":"SCRIP_CMD_0.99999.1"}
deadletter.retry     not_found     {"id":"SCRIP_CMD_0.99999.1"}
deadletter.discard   invalid       {}
deadletter.discard   invalid       {"all":true,"ids":["SCRIP_CMD_0.99999.1"]}
deadletter.discard   not_found     {"ids":["SCRIP_CMD_0.99999.1"]}
webhook.create       malformed     {"types":["coupon.*"]}
webhook.create       invalid       {"url":"ftp://x","types":["coupon.*"]}
webhook.show         not_found     {"webhook":"none"}
webhook.update       invalid       {"webhook":"$theirs"}
webhook.update       invalid       {"webhook":"$theirs","rate":5000}
webhook.update       invalid       {"webhook":"$theirs","rate":null}
webhook.update       version_mismatch {"webhook":"$theirs","rate":5,"version":999}
webhook.pause        not_found     {"webhook":"none"}
webhook.replay       malformed     {"webhook":"$theirs"}
webhook.retry        not_found     {"webhook":"none"}
webhook.rehearse     invalid       {"webhook":"none","fail":22}
webhook.create       invalid       {"url":"https://10.0.0.1/","types":["coupon.*"]}
webhook.deadletters  invalid       {"webhook":"$theirs","after":"x"}
rebuild.start        invalid       {"until":"2026-01-01T00:00:00Z"}
verify.start         invalid       {"limit":1001}
backup.start         malformed     {}
backup.start         invalid       {"name":"../there"}
job.show             not_found     {"id":"verify-0"}
job.stop             not_found     {"id":"verify-0"}
coupon.list          invalid       {}
coupon.list          invalid       {"last_four":"AAAA","customer_id":"ann"}
coupon.list          invalid       {"campaign":"none","last_four":"AAA"}
coupon.list          invalid       {"campaign":"none","after":"x"}
coupons.void         invalid       {"campaign":"none","all":true}
coupons.void         campaign_not_found {"campaign":"none","all":true,"dry_run":true}
coupons.extend       malformed     {"campaign":"none","all":true,"most":1}
campaign.clone       malformed     {"campaign":"none"}
campaign.clone       campaign_not_found {"campaign":"none","to":"x"}
campaign.diff        campaign_not_found {"campaign":"none","with":"none"}
campaign.statistics  campaign_not_found {"campaign":"none"}
due.list             invalid       {"limit":0}
`

// door is a way to the actions, used with the key of an operator.
type door struct {
	name string
	// do sends a request. refused is code and text of a refusal, "" = answer has the answer.
	do func(t *testing.T, action string, fields map[string]json.RawMessage) (answer any, refused string)
}

// byHTTP sends requests by the routes.
func byHTTP(r *apitest.Rig, as string) door {
	routes := map[string]api.Route{"codes.export": {Method: "GET", Path: "/v1/campaigns/{campaign}/codes"}}
	for _, route := range api.New(http.NewServeMux(), api.Options{}).Routes() {
		if route.Action != "" {
			routes[route.Action] = route
		}
	}
	return door{"http", func(t *testing.T, action string, fields map[string]json.RawMessage) (any, string) {
		route := routes[action]
		if route.Path == "" {
			t.Fatalf("%s has no route", action)
		}
		path, query, body, header := route.Path, url.Values{}, map[string]json.RawMessage{}, []string(nil)
		if route.Method == "PATCH" {
			header = []string{"If-Match", "*"}
		}
		for name, raw := range fields {
			text, err := strconv.Unquote(string(raw))
			if err != nil {
				text = string(raw)
			}
			switch {
			case strings.Contains(path, "{"+name+"}"):
				path = strings.Replace(path, "{"+name+"}", text, 1)
			case name == "version":
				header = []string{"If-Match", `"` + text + `"`}
			case route.Method == "GET":
				query.Set(name, text)
			default:
				body[name] = raw
			}
		}
		if len(query) > 0 {
			path += "?" + query.Encode()
		}
		var sent any
		if route.Method != "GET" && len(body) > 0 {
			sent = body
		}
		if route.Unsafe() {
			header = append(header, "Idempotency-Key", apitest.Name("walk"))
		}
		got := r.Ask(t, as, route.Method, path, sent, header...)
		if again := got; got.Status < 300 {
			if route.Unsafe() {
				again = r.Ask(t, as, route.Method, path, sent, header...).Want(t, got.Status)
			}
			if replayed := again.Header.Get("Idempotency-Replayed") == "true"; replayed != route.Unsafe() || !bytes.Equal(again.Body, got.Body) {
				t.Errorf("%s again, with the same Idempotency-Key: replayed is %v, %s, want %s", action, replayed, again.Body, got.Body)
			}
			if action == "codes.export" {
				return map[string]any{"campaign": ""}, ""
			}
			v := got.Object(t)
			if got.Status == 201 || got.Status == 202 { // Location is where it can be read, by its id
				id := v["id"]
				if action == "campaign.clone" {
					id = v["campaign"]
				}
				if at := got.Header.Get("Location"); !strings.HasSuffix(at, fmt.Sprint("/", id)) || r.Ask(t, as, "GET", at, nil).Status != 200 {
					t.Errorf("%s: Location is %q", action, at)
				}
			}
			return v, ""
		}
		v := got.Object(t)
		return nil, fmt.Sprint(v["code"], ": ", v["detail"])
	}}
}

// byNATS sends requests to the service.
func byNATS(t *testing.T, r *apitest.Rig, as string) door {
	u, err := url.Parse(r.NATS)
	streamtest.Must(t, err)
	u.User = url.User(r.Keys[as])
	nc, err := nats.Connect(u.String(), natsx.Keyed(u.String(), natsx.Options("test")...)...)
	streamtest.Must(t, err)
	t.Cleanup(nc.Close)
	return door{"nats", func(t *testing.T, action string, fields map[string]json.RawMessage) (any, string) {
		fields = maps.Clone(fields)
		fields["request_id"] = json.RawMessage(`"walk"`)
		if ops.Named(action).TakesID() {
			fields["id"] = json.RawMessage(strconv.Quote(apitest.Name("walk")))
		}
		body, err := json.Marshal(fields)
		streamtest.Must(t, err)
		m, err := nc.Request("scrip."+action, body, 20*time.Second)
		if err != nil {
			t.Fatalf("%s %s: %v", action, body, err)
		}
		if bytes.Contains(m.Data, []byte(`{"data"`)) && fields["id"] != nil && ops.Named(action).TakesID() {
			if again, err := nc.Request("scrip."+action, body, 20*time.Second); err != nil || !bytes.Equal(again.Data, m.Data) {
				t.Errorf("%s again, with the same id: %s, %v, want %s", action, again.Data, err, m.Data)
			}
		}
		var answer struct {
			Data             any
			Refusal, Message string
		}
		if err := json.Unmarshal(m.Data, &answer); err != nil {
			t.Fatalf("%s: %v: %s", action, err, m.Data)
		}
		if answer.Data == nil {
			return nil, answer.Refusal + ": " + answer.Message
		}
		return answer.Data, ""
	}}
}

// shape is the form of an answer: names and types, without values. Of a list it is that of the first element.
func shape(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, of := range v {
			out[name] = shape(of)
		}
		return out
	case []any:
		if len(v) == 0 {
			return []any{}
		}
		return []any{shape(v[0])}
	}
	return fmt.Sprintf("%T", v)
}

// fieldsOf reads fields in which $… are replaced.
func fieldsOf(t *testing.T, text string, values map[string]string) (fields map[string]json.RawMessage) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		text = strings.ReplaceAll(text, "$"+name, values[name])
	}
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return fields
}

// parked publishes a line that is refused and returns the id of its dead letter.
func parked(t *testing.T, r *apitest.Rig, campaign, id string) string {
	t.Helper()
	streamtest.Must(t, r.Shop.Conn().Publish("scrip.cmd."+campaign, []byte(`{"id":"`+id+`","type":"claim","customer":"ann"}`)))
	var letter string
	apitest.Until(t, "the dead letter is listed", func() bool {
		var list struct {
			Items []struct{ ID, Payload string }
		}
		r.Ask(t, "", "GET", "/v1/dead-letters", nil).Want(t, 200).Into(t, &list)
		for _, l := range list.Items {
			if strings.Contains(l.Payload, id) {
				letter = l.ID
			}
		}
		return letter != ""
	})
	return letter
}

// entries are what the audit stream has of a key, but log-ins, oldest first.
func entries(t *testing.T, r *apitest.Rig, key, via string) (all []string) {
	t.Helper()
	var page ops.Page[audit.Entry]
	r.Ask(t, "", "GET", "/v1/audit?limit=1000&actor="+key, nil).Want(t, 200).Into(t, &page)
	for _, e := range page.Items {
		if e.Kind == "login" || e.Kind == "jobs" && e.Via == "" { // the end of a job, which its server records
			continue
		}
		if e.Via != via {
			t.Errorf("via %s: %+v", via, e)
		}
		all = append(all, fmt.Sprintf("%s:%s", e.Kind, e.Action))
	}
	slices.Reverse(all)
	return all
}

// TestEveryActionThroughEveryDoor: each action of package ops over HTTP and over NATS. The answer has the same form, the audit
// stream has one entry of what changes something or shows codes, and none of what was refused; a bad request is refused with the
// same code and text, and so is a key that may not do it.
func TestEveryActionThroughEveryDoor(t *testing.T) {
	in := newInbox(t)
	r := apitest.Serve(t, func(o *server.Options) { o.WebhookAllow = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} })
	campaign := r.Campaign(t, map[string]any{"codes": 9})
	first, second := "operator+clear", "operator+clear2"
	r.Key(t, first)
	made := r.Ask(t, "", "POST", "/v1/keys", map[string]any{"name": "second", "role": "operator", "codes": true, "customers": true}).Want(t, 201).Object(t)
	r.Keys[second], r.IDs[second] = made["secret"].(string), made["id"].(string)
	apitest.Until(t, "the second key is in force", func() bool { return r.Ask(t, second, "GET", "/v1/settings", nil).Status == 200 })
	theirs := r.Ask(t, "", "POST", "/v1/webhooks", map[string]any{"url": in.URL, "types": []string{"coupon.*"}}).Want(t, 201).Object(t)["id"].(string)

	doors, keys := []door{byHTTP(r, first), byNATS(t, r, second)}, []string{r.IDs[first], r.IDs[second]}
	shapes, used := map[string]any{}, map[string]bool{}
	for i, d := range doors {
		values := map[string]string{"name": "walk-" + d.name, "campaign": campaign, "url": in.URL + "/" + d.name, "letter": parked(t, r, campaign, "bad-"+d.name)}
		var want []string
		for n, line := range strings.Split(strings.TrimSpace(uses), "\n") {
			part := strings.Fields(line)
			action, entry := part[0], part[1]
			used[action] = true
			answer, refused := d.do(t, action, fieldsOf(t, strings.Join(part[2:], " "), values))
			if refused != "" {
				t.Fatalf("%s %s: %s", d.name, line, refused)
			}
			object := answer.(map[string]any)
			switch action {
			case "access.create", "access.rotate":
				values["key"] = object["id"].(string)
			case "rebuild.start", "rebuild.undo", "rebuild.drop", "backup.start", "verify.start", "coupons.void", "coupons.extend":
				values["job"] = object["id"].(string)
				apitest.Until(t, action+" is done", func() bool {
					return r.Ask(t, "", "GET", "/v1/jobs/"+values["job"], nil).Want(t, 200).Object(t)["state"] == "done"
				})
			case "webhook.create":
				values["hook"] = object["id"].(string)
			case "webhook.test", "webhook.retry", "webhook.rehearse": // the result is there, or not yet
				object = map[string]any{}
			case "config.set", "config.changes": // the first door finds the defaults
				for _, name := range []string{"changes", "items"} {
					changes, _ := object[name].([]any)
					for _, change := range changes {
						delete(change.(map[string]any), "was")
					}
				}
			case "webhook.show": // positions come with the first run
				delete(object, "positions")
				delete(object, "last_test")
			case "webhook.attempts": // they come when they come
				object["items"] = object["items"].([]any)[:0]
			case "audit.list": // the address of a client is known to HTTP
				delete(object["items"].([]any)[0].(map[string]any), "from")
			case "overview.show": // rates change each second, how far behind tables are is absent while unknown, alerts come and go
				delete(object, "alerts")
				delete(object, "tables_behind")
				delete(object, "refused")
				delete(object, "recent")
			case "status.show":
				object = map[string]any{"lanes": object["lanes"], "lane": object["lane"].([]any)[:0], "log": object["log"]}
			}
			if entry != "-" {
				want = append(want, entry)
			}
			is := fmt.Sprint(shape(object))
			if at := fmt.Sprint(n); i == 0 {
				shapes[at] = is
			} else if shapes[at] != is {
				t.Errorf("%s: %s answers\n%v\nand %s\n%v", line, doors[0].name, shapes[at], d.name, is)
			}
		}
		if got := entries(t, r, keys[i], d.name); !slices.Equal(got, want) {
			t.Errorf("%s: the audit stream has\n%v, want\n%v", d.name, got, want)
		}
	}
	for i := range ops.Actions {
		if !used[ops.Actions[i].Name] {
			t.Errorf("the table above has no use of %s", ops.Actions[i].Name)
		}
	}

	bad := strings.Split(strings.TrimSpace(refusals), "\n")
	for i := range ops.Actions {
		if name := ops.Actions[i].Name; name != "codes.export" { // over HTTP it has another form
			bad = append(bad, name+` malformed {"campaign":"x","webhook":"x","key":"x","colour":"blue"}`)
		}
	}
	before := [][]string{entries(t, r, keys[0], "http"), entries(t, r, keys[1], "nats")}
	for _, line := range bad {
		part := strings.Fields(line)
		action := ops.Named(part[0])
		fields := fieldsOf(t, strings.Join(part[2:], " "), map[string]string{"me": "second", "theirs": theirs})
		for name := range fields { // what the generic rows have for paths alone
			if name != "colour" && fields["colour"] != nil && !strings.Contains(" "+action.Takes()+",", " "+name+",") {
				delete(fields, name)
			}
		}
		var texts []string
		for _, d := range doors {
			_, refused := d.do(t, part[0], fields)
			texts = append(texts, refused)
		}
		if texts[0] != texts[1] || !strings.HasPrefix(texts[0], part[1]+": ") || len(texts[0]) < len(part[1])+10 {
			t.Errorf("%s:\nhttp %s\nnats %s", line, texts[0], texts[1])
		}
	}
	for i, d := range doors {
		if after := entries(t, r, keys[i], d.name); !slices.Equal(before[i], after) {
			t.Errorf("%s: refused requests are recorded: %v", d.name, after[len(before[i]):])
		}
	}

	for _, as := range []string{"producer", "analyst", "support", "operator+" + campaign} {
		r.Key(t, as)
		role, _, limited := strings.Cut(as, "+")
		for i := range ops.Actions {
			action := &ops.Actions[i]
			p := access.Principal{ID: "x", Name: "x", Role: access.Operator, Codes: true, Campaigns: []string{campaign}}
			if p.Role, _ = access.ParseRole(role); !limited {
				p.Campaigns = nil
			}
			why := p.Check(action.Operation, "other")
			if why == nil || action.Name == "codes.export" {
				continue
			}
			d := byHTTP(r, as)
			fields := map[string]json.RawMessage{"webhook": json.RawMessage(`"x"`), "key": json.RawMessage(`"x"`), "campaign": json.RawMessage(`"other"`)}
			if _, refused := d.do(t, action.Name, fields); refused != "forbidden: "+why.Error() {
				t.Errorf("%s as %s: %s, want %s", action.Name, as, refused, why)
			}
			if _, err := action.Do(t.Context(), &ops.Ops{}, ops.Caller{Principal: p}, fields); err == nil || err.Error() != why.Error() { // nothing of Ops is called
				t.Errorf("%s as %s: %v", action.Name, as, err)
			}
		}
	}
}
