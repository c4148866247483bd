package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// commandStream is a client of a stream of commands.
type commandStream struct {
	send io.WriteCloser
	got  *bufio.Reader
}

func openStream(t *testing.T, r *apitest.Rig, as string) *commandStream {
	t.Helper()
	body, send := io.Pipe()
	resp, err := http.DefaultClient.Do(r.Request(t, as, "POST", "/v1/commands", body, "Content-Type", "application/x-ndjson", "Scrip-Stream", "1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = send.Close(); _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	return &commandStream{send, bufio.NewReader(resp.Body)}
}

// expect reads a line.
func (s *commandStream) expect(t *testing.T, parts ...string) {
	t.Helper()
	line, err := s.got.ReadString('\n')
	for _, part := range parts {
		if err != nil || !strings.Contains(line, part) {
			t.Fatalf("%q, %v; want %s", line, err, part)
		}
	}
}

// TestStreamOfCommands: outcomes come while the body is still open, in the order of the lines, and the stream ends with the body
// or with its key.
func TestStreamOfCommands(t *testing.T) {
	r := apitest.Shared(t)
	c := r.Campaign(t, map[string]any{"codes": 300})
	r.Key(t, "producer")
	s := openStream(t, r, "producer")
	claim := func(i int) string {
		return fmt.Sprintf(`{"id":"s%d","type":"claim","campaign":"%s","customer_id":"customer %d"}`+"\n", i, c, i)
	}
	write := func(s *commandStream, text string) {
		t.Helper()
		if _, err := io.WriteString(s.send, text); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 { // each is answered before the next is sent
		write(s, claim(i))
		s.expect(t, fmt.Sprintf(`{"id":"s%d","status":"claimed"`, i))
	}
	var many strings.Builder
	for i := 3; i < 200; i++ {
		many.WriteString(claim(i))
	}
	go func() {
		_, _ = io.WriteString(s.send, many.String()+"no line\n"+`{"id":"p","type":"pause_campaign","campaign":"x"}`+"\n\n"+claim(0))
	}()
	for i := 3; i < 200; i++ {
		s.expect(t, fmt.Sprintf(`{"id":"s%d","status":"claimed"`, i))
	}
	s.expect(t, `"refusal":"invalid"`)
	s.expect(t, `{"id":"p","status":"refused"`)
	s.expect(t, `{"id":"s0","status":"claimed"`, `"repeat":true`)
	_ = s.send.Close()
	if rest, err := io.ReadAll(s.got); err != nil || len(rest) > 0 {
		t.Errorf("after the body: %q, %v", rest, err)
	}

	s = openStream(t, r, "producer")
	go func() { _, _ = io.WriteString(s.send, claim(0)+strings.Repeat("x", 17<<10)+"\n"+claim(1)) }()
	s.expect(t, `"repeat":true`)
	s.expect(t, `"refusal":"invalid"`, "the stream ends")
	if rest, _ := io.ReadAll(s.got); len(rest) > 0 {
		t.Errorf("after a long line: %q", rest)
	}

	s = openStream(t, r, "producer")
	write(s, claim(0))
	s.expect(t, `"repeat":true`)
	r.Ask(t, "", "DELETE", "/v1/keys/"+r.IDs["producer"], nil).Want(t, 200)
	if rest, _ := io.ReadAll(s.got); len(rest) > 0 {
		t.Errorf("after the key was revoked: %q", rest)
	}
	r.Ask(t, "", "POST", "/v1/commands", "{}", "Content-Type", "application/x-ndjson", "Scrip-Stream", "yes").Problem(t, 400, "malformed", "header.Scrip-Stream")
}

// TestCommandStreamsOfOneKey: one key has sixteen streams of commands at once, and not one more; another key, and the first one once a
// stream has ended, has one.
func TestCommandStreamsOfOneKey(t *testing.T) {
	r := apitest.Shared(t)
	const name, most = "producer", 16
	r.Key(t, name)
	r.Key(t, "producer+other")
	ask := func(as string) *apitest.Response {
		return r.Ask(t, as, "POST", "/v1/commands", "", "Content-Type", "application/x-ndjson", "Scrip-Stream", "1")
	}
	var open []*commandStream
	for range most {
		open = append(open, openStream(t, r, name))
	}
	for range 3 {
		ask(name).Problem(t, 429, "overloaded", "")
	}
	if refused := ask(name); !strings.Contains(string(refused.Body), "command_streams_per_key is 16 at this server") || refused.Header.Get("Retry-After") == "" {
		t.Errorf("%v %s", refused.Header, refused.Body)
	}
	var st status.Status
	r.Ask(t, "", "GET", "/v1/status", nil).Want(t, 200).Into(t, &st)
	limits := st.PerServer[0].Limits
	if i := slices.IndexFunc(limits, func(l status.Limit) bool { return l.What == "http_command_streams_per_key" }); i < 0 || limits[i].Used != most || limits[i].Limit != most || limits[i].Refused < 4 {
		t.Errorf("the status has %+v", limits)
	}
	ask("producer+other").Want(t, 200)
	_ = open[0].send.Close()
	if _, err := io.ReadAll(open[0].got); err != nil {
		t.Error(err)
	}
	apitest.Until(t, "the slot is free", func() bool { return ask(name).Status == 200 })
}

// TestLinesCountForTheRateOfAKey: a key with a rate cannot get round it by many lines in one request, or by requests over NATS
// beside those over HTTP.
func TestLinesCountForTheRateOfAKey(t *testing.T) {
	r := apitest.Shared(t)
	c := r.Campaign(t, map[string]any{"codes": 100})
	const rate = 5
	r.Key(t, "producer+rate=5")
	var lines strings.Builder
	for i := range 4 * rate {
		fmt.Fprintf(&lines, `{"id":"rated%d","type":"claim","campaign":"%s","customer_id":"customer %d"}`+"\n", i, c, i)
	}
	answer := string(r.Ask(t, "producer+rate=5", "POST", "/v1/commands", lines.String(), "Content-Type", "application/x-ndjson").Want(t, 200).Body)
	claimed, refused := strings.Count(answer, `"status":"claimed"`), strings.Count(answer, `"refusal":"rate_limited"`)
	if claimed == 0 || claimed > rate || claimed+refused != 4*rate { // requests before them took some
		t.Errorf("%d claimed and %d refused of %d:\n%s", claimed, refused, 4*rate, answer)
	}
	var codes []string
	key := r.Keys["producer+rate=5"]
	nc, err := nats.Connect(r.NATS, nats.Token(key), nats.CustomInboxPrefix(natsx.KeyInbox(key)))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	began := time.Now()
	for range 4 * rate {
		reply, err := nc.Request("scrip.claim."+c, []byte(`{"customer_id":"more"}`), apitest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		codes = append(codes, reply.Header.Get(micro.ErrorCodeHeader))
	}
	if !slices.Contains(codes, "429") && time.Since(began) < time.Second {
		t.Errorf("%d requests over NATS within %s: %q", len(codes), time.Since(began), codes)
	}
}
