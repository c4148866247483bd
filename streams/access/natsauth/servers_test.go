package natsauth_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// servers is a connection with the credentials of the servers.
func (r *rig) servers(t *testing.T) guest {
	t.Helper()
	g := guest{denied: make(chan string, 4096)}
	g.Conn = r.Conn(t, nats.UserInfo(streamtest.ServersUser, streamtest.ServersPassword), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { g.denied <- err.Error() }))
	return g
}

// attempt tries what a user may, cell by cell, and notes which cells had their effect.
type attempt struct {
	*testing.T
	guest
	tried map[string]bool
}

// request expects an answer with this text and without an error.
func (a *attempt) request(subject, body, want string) *nats.Msg {
	a.Helper()
	a.tried[subject] = true
	m, err := a.Request(subject, []byte(body), 20*time.Second)
	if err != nil {
		a.Fatalf("%s: %v", subject, err)
	}
	if text := string(m.Data); len(m.Data) == 0 && len(m.Header) == 0 || strings.Contains(text, `"error":{`) || m.Header.Get("Nats-Service-Error-Code") != "" || !strings.Contains(text, want) {
		a.Errorf("%s %s had no effect: %s %v", subject, body, text, m.Header)
	}
	return m
}

// silent publishes what nothing answers; at the end none of it may have been refused.
func (a *attempt) silent(subject string) {
	a.tried[subject] = true
	if err := a.Publish(subject, nil); err != nil {
		a.Fatal(err)
	}
}

// none fails the test if anything was refused.
func (a *attempt) none() {
	a.Helper()
	if err := a.Flush(); err != nil {
		a.Fatal(err)
	}
	select {
	case err := <-a.denied:
		a.Error(err)
	default:
	}
}

// under are the subjects of the streams of the tables.
var under = map[string][]string{
	"SCRIP_CMD_0": {"scrip.lane.0.cmd", "scrip.lane.0.shop", "scrip.lane.0.due", "scrip.lane.0.cmd.*", "scrip.lane.0.admin.*"},
	"SCRIP_CMD_1": {"scrip.lane.1.cmd", "scrip.lane.1.shop", "scrip.lane.1.due", "scrip.lane.1.cmd.*", "scrip.lane.1.admin.*"},
	"SCRIP_EVT_0": {"scrip.evt.0"}, "SCRIP_EVT_1": {"scrip.evt.1"}, "SCRIP_RMD_0": {"scrip.rmd.0"}, "SCRIP_RMD_1": {"scrip.rmd.1"},
	"KV_SCRIP_STATE": {"$KV.SCRIP_STATE.>"}, "KV_SCRIP_LEASE": {"$KV.SCRIP_LEASE.>"}, "KV_SCRIP_CONFIG": {"$KV.SCRIP_CONFIG.>"}, "KV_SCRIP_ACCESS": {"$KV.SCRIP_ACCESS.>"},
	"KV_SCRIP_WEBHOOKS": {"$KV.SCRIP_WEBHOOKS.>"}, "KV_SCRIP_PUSH": {"$KV.SCRIP_PUSH.>"}, "KV_SCRIP_JOBS": {"$KV.SCRIP_JOBS.>"}, "OBJ_SCRIP_SNAP": {"$O.SCRIP_SNAP.>"},
	"SCRIP_AUDIT": {"scrip.audit"}, "SCRIP_PUSH_WAIT": {"scrip.push.wait.>"}, "SCRIP_PUSH_DEAD": {"scrip.push.dead.>"},
}

// TestServersMayWhatTheyNeed and nothing else: the user of the servers, and of the data directory, each cell. Requests of the
// service are tried on a real log. Streams are made, filled, read, copied, removed and restored on a server without one.
func TestServersMayWhatTheyNeed(t *testing.T) {
	t.Parallel()
	tried := map[string]bool{}
	stored := func(subject string) bool {
		return slices.ContainsFunc([]string{"scrip.cmd.", "scrip.admin.", "scrip.lane.", "scrip.evt.", "scrip.rmd.", "scrip.audit", "scrip.push.", "$KV.", "$O."},
			func(p string) bool { return strings.HasPrefix(subject, p) }) && !strings.HasSuffix(subject, ".query") && subject != "scrip.audit.list"
	}
	mine := may(t, "servers")

	r := newRealRig(t)
	a := &attempt{t, r.servers(t), tried}
	before := r.shape(t)
	refuseAll(t, a.guest, "servers")
	same(t, before, r.shape(t))
	for _, subject := range mine {
		switch {
		case strings.HasPrefix(subject, "$JS."), stored(subject):
		case strings.HasPrefix(subject, "_"), strings.HasPrefix(subject, "$SYS"): // answers, and the end of a connection: of other tests
			a.silent(subject)
		default:
			a.request(subject, r.fixture(t, a.guest, cells(t)[subject].body), "")
		}
	}
	a.none()

	r = newRigWithout(t)
	a = &attempt{t, r.servers(t), tried}
	api := func(call, stream, body, want string) *nats.Msg {
		t.Helper()
		subject := "$JS.API." + strings.ReplaceAll(call, "#", stream)
		if !slices.Contains(mine, subject) {
			return nil
		}
		return a.request(subject, body, want)
	}
	config := func(stream, more string) string {
		subjects, _ := json.Marshal(under[stream])
		return fmt.Sprintf(`{"name":%q,"subjects":%s,"storage":"file","num_replicas":1,"allow_direct":true%s}`, stream, subjects, more)
	}
	streams := slices.Sorted(maps.Keys(under))
	for _, s := range streams {
		api("STREAM.CREATE.#", s, config(s, ""), "stream_create_response")
		api("STREAM.UPDATE.#", s, config(s, `,"description":"changed"`), `"changed"`)
	}
	for _, subject := range mine {
		if stored(subject) {
			a.request(subject, "{}", `"seq":`)
		}
	}
	a.request("scrip.evt.1", "{}", `"seq":`) // one for each stream that no cell has
	a.request("scrip.rmd.1", "{}", `"seq":`)
	api("INFO", "", "", `"streams":17`)
	api("STREAM.NAMES", "", "", "SCRIP_PUSH_DEAD")
	for _, s := range streams {
		api("STREAM.INFO.#", s, "", `"state"`)
		api("STREAM.MSG.GET.#", s, `{"seq":1}`, `"data"`)
		api("DIRECT.GET.#", s, `{"seq":1}`, "")
		api("DIRECT.GET.#.scrip.evt.0", s, "", "") // a header: there is none
		consumer := `{"stream_name":"` + s + `","config":{"name":"name","ack_policy":"explicit","filter_subject":"%s"}}`
		if filtered := "CONSUMER.CREATE.#.name.scrip.evt.0"; s == "SCRIP_EVT_0" {
			api(filtered, s, fmt.Sprintf(consumer, "scrip.evt.0"), "consumer_create_response")
		} else {
			a.silent("$JS.API." + strings.ReplaceAll(filtered, "#", s))
			api("CONSUMER.CREATE.#.name", s, fmt.Sprintf(consumer, ""), "consumer_create_response")
		}
		a.tried["$JS.API.CONSUMER.CREATE."+s+".name"] = true // of the one that has a filter: the same request without
		api("CONSUMER.INFO.#.name", s, "", `"ack_floor"`)
		m := api("CONSUMER.MSG.NEXT.#.name", s, `{"batch":1,"expires":5000000000}`, "")
		for _, v := range []string{"$JS.ACK.#.name.1.1.1.1.1", "$JS.ACK._.hash.#.name.1.1.1.1.1", "$JS.FC.#.name.x", "$JS.FC._.hash.#.name.x", "$JS.SNAPSHOT.ACK.#.x", "$JS.SNAPSHOT.RESTORE.#.x"} {
			if subject := strings.ReplaceAll(v, "#", s); slices.Contains(mine, subject) {
				a.silent(subject)
			}
		}
		if m != nil && slices.Contains(mine, "$JS.ACK."+s+".name.1.1.1.1.1") {
			if _, err := a.Request(m.Reply, []byte("+ACK"), 20*time.Second); err != nil {
				t.Errorf("%s: an acknowledgement: %v", m.Reply, err)
			}
		}
		api("CONSUMER.DELETE.#.name", s, "", `"success":true`)
		body, chunks := snapshot(t, a, s)
		api("STREAM.MSG.DELETE.#", s, `{"seq":1}`, `"success":true`)
		api("STREAM.PURGE.#", s, "", `"success":true`)
		api("STREAM.DELETE.#", s, "", `"success":true`)
		restore(t, a, s, body, chunks)
		if m := api("STREAM.INFO.#", s, "", `"state"`); m != nil && strings.Contains(string(m.Data), `"messages":0`) {
			t.Errorf("%s was restored without its messages: %s", s, m.Data)
		}
	}
	a.none()
	for _, subject := range mine {
		if !tried[subject] {
			t.Errorf("%s: allowed, and no effect was seen", subject)
		}
	}
}

// snapshot copies a stream.
func snapshot(t *testing.T, a *attempt, stream string) (body []byte, chunks [][]byte) {
	t.Helper()
	inbox, err := a.SubscribeSync(a.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	var info struct {
		Config json.RawMessage `json:"config"`
		State  json.RawMessage `json:"state"`
	}
	m := a.request("$JS.API.STREAM.SNAPSHOT."+stream, fmt.Sprintf(`{"deliver_subject":%q,"no_consumers":true,"chunk_size":1024}`, inbox.Subject), `"config"`)
	if err := json.Unmarshal(m.Data, &info); err != nil {
		t.Fatal(err)
	}
	if body, err = json.Marshal(info); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := inbox.NextMsg(20 * time.Second)
		if err != nil {
			t.Fatalf("the copy of %s: %v", stream, err)
		}
		if m.Reply != "" {
			err = m.Respond(nil)
		}
		if len(m.Data) == 0 || err != nil {
			return body, chunks
		}
		chunks = append(chunks, m.Data)
	}
}

// restore makes a stream from its copy.
func restore(t *testing.T, a *attempt, stream string, body []byte, chunks [][]byte) {
	t.Helper()
	var to struct {
		Deliver string `json:"deliver_subject"`
	}
	if m := a.request("$JS.API.STREAM.RESTORE."+stream, string(body), "deliver_subject"); json.Unmarshal(m.Data, &to) != nil {
		t.Fatal(string(m.Data))
	}
	for _, chunk := range append(chunks, nil) {
		if m, err := a.Request(to.Deliver, chunk, 20*time.Second); err != nil || strings.Contains(string(m.Data), `"error":`) {
			t.Fatalf("restoring %s: %v, %v", stream, m, err)
		}
	}
}

// TestServersHearOnlyWhatTheyServe: no other subject.
func TestServersHearOnlyWhatTheyServe(t *testing.T) {
	t.Parallel()
	g := newRig(t).servers(t)
	var may []string
	for line := range strings.Lines(subjectTable) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[0], "scrip.") && strings.Contains(f[1], "O") {
			may = append(may, strings.Replace(f[0], "summer", "*", 1), strings.Replace(strings.Replace(f[0], "scrip.", "scrip.guest.*.", 1), "summer", "*", 1))
		}
	}
	may = slices.DeleteFunc(may, func(s string) bool { return strings.Contains(s, "winter") || s == "scrip.guest.*.rollcall" })
	for _, subject := range append(may, "_INBOX.x.>", "scrip.cmd.*", "scrip.admin.*", "scrip.lane.*.query", "scrip.lane.1.query", "scrip.evt.*", "scrip.rmd.*", "$SRV.PING", "$SRV.INFO.scrip", "$SRV.STATS.scrip.id", "$SYS.REQ.USER.AUTH") {
		if _, err := g.QueueSubscribeSync(subject, "tests"); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Flush(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-g.denied:
		t.Error(err)
	default:
	}
	for _, subject := range []string{">", "*", "scrip.>", "scrip.*", "scrip.evt.0.more", "scrip.lane.>", "scrip.lane.0.cmd", "scrip.audit", "scrip.push.>", "scrip.guest.>", "_INBOX_producer.>",
		"_R_.>", "$SYS.>", "$SYS.REQ.SERVER.PING", "$JS.>", "$JS.API.>", "$JS.EVENT.ADVISORY.>", "$KV.>", "$KV.SCRIP_ACCESS.>", "$O.>", "orders.*"} {
		if _, err := g.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		if err := g.Flush(); err != nil {
			t.Fatal(err)
		}
		expectDenied(t, g, subject)
	}
}

// TestAccountsForFewerLanes: the log's further streams are closed, so the file must be for its number.
func TestAccountsForFewerLanes(t *testing.T) {
	for lanes, want := range map[int]bool{1: false, 4: true, 16: true} {
		if has := slices.Contains(natsauth.OfServers(lanes).Publish, "$JS.API.STREAM.INFO.SCRIP_EVT_3"); has != want {
			t.Errorf("%d lanes: %v", lanes, has)
		}
	}
}
