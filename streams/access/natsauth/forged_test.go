package natsauth_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// raw is a connection that writes the NATS protocol itself: no client library sends these header blocks. Answers go to another
// connection of the same key.
type raw struct {
	guest
	t       testing.TB
	conn    net.Conn
	answers *nats.Subscription
	errors  chan string // of NATS, about what was written
}

// rawGuest logs in with a key, and with what else CONNECT says.
func (r *rig) rawGuest(t testing.TB, key, more string) *raw {
	t.Helper()
	c := &raw{guest: r.guest(t, key), t: t, errors: make(chan string, 64)}
	var err error
	c.answers, err = c.SubscribeSync(natsx.KeyInbox(key) + ".raw")
	streamtest.Must(t, err)
	streamtest.Must(t, c.Flush())
	c.conn, err = net.Dial("tcp", strings.TrimPrefix(r.ClientURL(), "nats://"))
	streamtest.Must(t, err)
	t.Cleanup(func() { _ = c.conn.Close() })
	streamtest.Must(t, c.conn.SetDeadline(time.Now().Add(5*time.Minute)))
	c.write(fmt.Sprintf(`CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1,"auth_token":%q%s}`, key, more) + "\r\nPING\r\n")
	lines := bufio.NewScanner(c.conn)
	for lines.Scan() && lines.Text() != "PONG" {
	}
	go func() {
		defer close(c.errors)
		for lines.Scan() {
			switch line := lines.Text(); {
			case line == "PING":
				_, _ = io.WriteString(c.conn, "PONG\r\n")
			case strings.HasPrefix(line, "-ERR"):
				c.errors <- line
			}
		}
	}()
	return c
}

func (c *raw) write(text string) {
	c.t.Helper()
	_, err := io.WriteString(c.conn, text)
	streamtest.Must(c.t, err)
}

// publish writes a request with this block of header bytes, "" = without one.
func (c *raw) publish(subject, block, body string) {
	c.t.Helper()
	if block == "" {
		c.write(fmt.Sprintf("PUB %s %s %d\r\n%s\r\n", subject, c.answers.Subject, len(body), body))
	} else {
		c.write(fmt.Sprintf("HPUB %s %s %d %d\r\n%s%s\r\n", subject, c.answers.Subject, len(block), len(block)+len(body), block, body))
	}
}

// request publishes a request and returns the answer.
func (c *raw) request(subject, block, body string) *nats.Msg {
	c.t.Helper()
	c.publish(subject, block, body)
	m, err := c.answers.NextMsg(time.Minute)
	if err != nil || len(c.errors) > 0 {
		c.t.Fatalf("%s with the header block %q: %v, %d errors", subject, block, err, len(c.errors))
	}
	return m
}

// blocks are header blocks that hide or replace the line with which NATS names the sender, for a victim's key. nats-server does
// not check a client's block: it cuts the last two bytes off and appends its own line.
func blocks(account, victim string) map[string]string {
	forged := fmt.Sprintf(`Nats-Request-Info: {"start":"2026-11-23T00:00:00Z","host":"127.0.0.1","id":7,"acc":%q,"user":%q,"name":"x","lang":"go","rtt":1}`, account, victim)
	all := map[string]string{
		"blank line before it":           "NATS/1.0\r\n\r\n\r\n",
		"blank line, and a name":         "NATS/1.0\r\nScrip-By: ann\r\n\r\n\r\n",
		"no end of line":                 "NATS/1.0\r\nA: bXX",
		"no end of the first line":       "NATS/1.0XX",
		"a status without end":           "NATS/1.0 100 XX",
		"no end of the name":             "NATS/1.0\r\nAXX",
		"undecodable":                    "NATS/1.0\r\nX\r\n\r\n",
		"undecodable first line":         "HTTP/1.1\r\nA: b\r\n\r\n",
		"two bytes":                      "XX",
		"one byte":                       "X",
		"bare line feeds":                "NATS/1.0\n\n\r\n",
		"forged":                         "NATS/1.0\r\n" + forged + "\r\n\r\n",
		"forged, bare line feed":         "NATS/1.0\r\nA: b\n" + forged + "\r\n\r\n",
		"forged, bare line feed, hidden": "NATS/1.0\r\nA: b\n" + forged + "\r\n\r\n\r\n",
		"forged after the name twice":    "NATS/1.0\r\nX: Nats-Request-InfoNats-Request-Info\r\n" + forged + "\r\n\r\n",
		"forged, no end":                 "NATS/1.0\r\n" + forged + "XX",
		"forged, hidden":                 "NATS/1.0\n" + forged + "\r\n\r\n\r\n",
		"forged, glued":                  "NATS/1.0\nA: b\n" + forged + "\nA: XX",
		"forged, lower case":             "NATS/1.0\r\n" + strings.ToLower(forged) + "\r\n\r\n",
	}
	// Each of these lines is two bytes shorter than its canonical form, which pays for hidden bytes elsewhere.
	short := strings.Repeat("a:\n", 300)
	all["short lines pay for hidden ones"] = "NATS/1.0\n" + short + "\n\r\n"
	all["short lines pay, forged"] = "NATS/1.0\n" + short + forged + "\n\n\r\n"
	return all
}

// noEffect reports whether the answer is that of a request that its sender may not make, or whose body is no JSON: NATS takes a
// block of one or two bytes for a part of the body.
func noEffect(m *nats.Msg) bool {
	return m.Header.Get(micro.ErrorCodeHeader) == "403" || strings.Contains(string(m.Data), `"refusal":"invalid"`)
}

// TestNobodyIsSomebodyElse: a limited key sends each block with a request that it may not make. It is never taken for the servers'
// own account, nor for another key.
func TestNobodyIsSomebodyElse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, operator, _ := access.ParseKey(r.keys.add(kinds["operator"]))
	_, producer, _ := access.ParseKey(r.keys.add(kinds["producer"]))
	key := r.keys.add(kinds["limited"])
	_, own, _ := access.ParseKey(key)
	c := r.rawGuest(t, key, "")
	refused := func(name, block string) {
		t.Helper()
		m := c.request("scrip.redeem", block, `{"code":"X","campaign":"winter","order_id":"o"}`)
		if !noEffect(m) {
			t.Errorf("%s: the answer to %q is %v %s", name, block, m.Header, m.Data)
		}
	}
	allowed := func(block string) {
		t.Helper()
		m := c.request("scrip.redeem", block, `{"code":"X","campaign":"summer","order_id":"o"}`)
		if !strings.Contains(string(m.Data), `"status":"redeemed"`) {
			t.Errorf("the answer to %q is %v %s", block, m.Header, m.Data)
		}
	}
	allowed("")
	allowed("NATS/1.0\r\nScrip-Timeout: 5s\r\n\r\n")
	allowed("NATS/1.0\r\nScrip-Timeout:5s\r\nScrip-Trace:x\r\n\r\n") // as nats.java writes it
	refused("no header", "")
	for _, victim := range []struct{ account, user string }{
		{"OPS", operator}, {"SHOP", producer}, {"COUNTER", producer}, {"OPS", own}, {"SCRIP", operator}, {"$G", operator}, {"OPS", "ann"}, {"COUNTER", "ann"},
	} {
		for name, block := range blocks(victim.account, victim.user) {
			refused(victim.account+" "+name, block)
		}
	}
	// Random blocks of the same parts.
	parts := []string{"NATS/1.0", "NATS/1.0 503", "\r\n", "\r\n", "\n", "\r", ":", ": ", " ", "A", "XX", "Nats-Request-Info", "Nats-Request-Info: ",
		fmt.Sprintf(`{"acc":"COUNTER","user":%q}`, producer), fmt.Sprintf("\r\nNats-Request-Info: {\"acc\":\"COUNTER\",\"user\":%q}", producer),
		fmt.Sprintf("\nNats-Request-Info: {\"acc\":\"OPS\",\"user\":%q}\n", operator), "Scrip-By: ann\r\n", "\r\n\r\n", "a:\n", strings.Repeat("a:\n", 50)}
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var b strings.Builder
		if random.IntN(4) > 0 {
			b.WriteString("NATS/1.0" + []string{"\r\n", "\n"}[random.IntN(2)])
		}
		for range 1 + random.IntN(12) {
			b.WriteString(parts[random.IntN(len(parts))])
		}
		if random.IntN(2) > 0 {
			b.WriteString("\r\n\r\n")
		}
		refused("random", b.String())
	}
	// The name of the user is the key's, whatever CONNECT has.
	for _, more := range []string{fmt.Sprintf(`,"user":%q,"name":"\"acc\":\"OPS\""`, operator), fmt.Sprintf(`,"nkey":%q`, operator), fmt.Sprintf(`,"user":%q,"nkey":%q`, operator, operator)} {
		c = r.rawGuest(t, key, more)
		allowed("")
		refused("CONNECT "+more, "")
	}
	for _, cmd := range r.owner.Commands() {
		if cmd.Campaign == "winter" {
			t.Errorf("a command of another campaign was decided: %+v", cmd)
		}
	}
}

// TestALimitedOperatorMakesNoKeys: not with a header block that hides who it is, either.
func TestALimitedOperatorMakesNoKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key := r.keys.add(access.Principal{Name: "bob", Role: access.Operator, Campaigns: []string{"summer"}})
	_, id, _ := access.ParseKey(key)
	c := r.rawGuest(t, key, "")
	before, err := r.keys.store.List(t.Context())
	streamtest.Must(t, err)
	for name, block := range blocks("OPS", id) {
		c.publish("scrip.access.create", block, makeOperator)
		if err := <-c.errors; !strings.Contains(err, "Permissions Violation") {
			t.Fatalf("%s: %q", name, err)
		}
	}
	if m, err := c.answers.NextMsg(time.Millisecond); err == nil {
		t.Errorf("it is answered: %s", m.Data)
	}
	if now, err := r.keys.store.List(t.Context()); err != nil || len(now) != len(before) {
		t.Errorf("%d keys became %d, %v", len(before), len(now), err)
	}
}

const makeOperator = `{"name":"eve","role":"operator","codes":true,"customers":true}`

// TestByIsNeverForged: whichever block a person's command has, it is refused, or the lane gets that person's name.
func TestByIsNeverForged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, operator, _ := access.ParseKey(r.keys.add(kinds["operator"]))
	key := r.keys.add(kinds["support"])
	_, id, _ := access.ParseKey(key)
	c := r.rawGuest(t, key, "")
	me, err := r.registry.Principal(id)
	streamtest.Must(t, err)
	lane := topology.LaneOf("summer", lanes)
	stream, err := r.js.Stream(t.Context(), topology.CmdStream(lane))
	streamtest.Must(t, err)
	last := uint64(0)
	decided := 0
	check := func(block string) {
		t.Helper()
		m := c.request("scrip.void", block, `{"code":"X","campaign":"summer","reason":"fraud"}`)
		if noEffect(m) {
			return
		}
		decided++
		cmd, err := stream.GetLastMsgForSubject(t.Context(), topology.LaneCmd(lane))
		if err != nil || cmd.Sequence == last {
			t.Fatalf("%q: %v %s, and %v", block, m.Header, m.Data, err)
		}
		last = cmd.Sequence
		if by := cmd.Header.Get(topology.HeaderBy); by != me.Name {
			t.Errorf("%q: by is %q", block, by)
		}
	}
	check("")
	check("NATS/1.0\r\nScrip-By: eve\r\n\r\n")
	if decided != 2 {
		t.Errorf("%d commands in order were decided", decided)
	}
	for _, block := range blocks("OPS", operator) {
		check(block)
	}
}

// TestAnswersOfNATSAreNoRequests: NATS' own answers have no header. One that goes to an endpoint is refused, and its sender's
// rights, whoever it is, are not those of the servers' account.
func TestAnswersOfNATSAreNoRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	g := r.guest(t, r.keys.add(kinds["operator"]))
	seen := make(chan *nats.Msg, 64)
	servers := r.Conn(t)
	for _, subject := range []string{"scrip.campaign.list", "scrip.guest.*.campaign.list"} {
		if _, err := servers.ChanSubscribe(subject, seen); err != nil {
			t.Fatal(err)
		}
	}
	streamtest.Must(t, servers.Flush())
	if err := g.PublishRequest(natsauth.UserInfo, "scrip.campaign.list", nil); err != nil {
		t.Fatal(err)
	}
	select {
	case m := <-seen:
		if _, local, err := access.RequesterOf(m); err == nil {
			t.Errorf("an answer of NATS on %s with %v is a request, local: %t", m.Subject, m.Header, local)
		}
		if !json.Valid(m.Data) {
			t.Errorf("the answer is %s", m.Data)
		}
	case <-time.After(time.Minute):
		t.Fatal("NATS did not answer to that subject")
	}
}
