package api_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

type eventLine struct {
	Type, Campaign, Code, Customer_ID, Cursor, Reason, Request_ID string
	Lane, Sequence, Line                                          int
}

// place identifies an event.
func (e *eventLine) place() string { return fmt.Sprintf("%d/%d/%d", e.Lane, e.Sequence, e.Line) }

// events reads a stream that ends.
func events(t *testing.T, r *apitest.Rig, as, query string, header ...string) (all []eventLine, cursor string) {
	t.Helper()
	answer := r.Ask(t, as, "GET", "/v1/events?"+query, nil, header...).Want(t, 200)
	for line := range strings.Lines(string(answer.Body)) {
		var e eventLine
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		if e.Type == "cursor" {
			cursor = e.Cursor
			continue
		}
		all = append(all, e)
	}
	return all, cursor
}

// TestEvents: of one log, what it has and what comes.
func TestEvents(t *testing.T) {
	r := apitest.Serve(t)
	t.Run("read", func(t *testing.T) { readEvents(t, r) })
	t.Run("follow", func(t *testing.T) { followEvents(t, r) })
}

// readEvents: the whole log, parts of it, and what follows a cursor; each event once.
func readEvents(t *testing.T, r *apitest.Rig) {
	a, b := r.Campaign(t, map[string]any{"codes": 100}), r.Campaign(t, map[string]any{"codes": 100})
	for i := range 20 {
		r.Claim(t, a, fmt.Sprint("customer", i))
	}
	code := r.Claim(t, b, "ann")
	r.Key(t, "analyst")
	r.Key(t, "analyst+clear")
	all, cursor := events(t, r, "analyst+clear", "")
	seen := map[string]bool{}
	for _, e := range all {
		seen[e.place()] = true
	}
	if len(all) != 23 || len(seen) != 23 || cursor == "" {
		t.Fatalf("%d events at %d places, cursor %q", len(all), len(seen), cursor)
	}
	if more, again := events(t, r, "analyst+clear", "after="+cursor); len(more) != 0 || again == "" {
		t.Errorf("after the end: %+v %s", more, again)
	}
	r.Redeem(t, code, "o1")
	for what, read := range map[string]func() []eventLine{
		"after":         func() []eventLine { e, _ := events(t, r, "analyst+clear", "after="+cursor); return e },
		"Last-Event-ID": func() []eventLine { e, _ := events(t, r, "analyst+clear", "", "Last-Event-ID", cursor); return e },
	} {
		if more := read(); len(more) != 1 || more[0].Type != "coupon.redeemed" || more[0].Code != code || seen[more[0].place()] {
			t.Errorf("%s: %+v", what, more)
		}
	}
	if some, _ := events(t, r, "analyst+clear", "types=coupon.claimed,coupon.redeemed&campaign="+b); len(some) != 2 || some[0].Customer_ID != "ann" {
		t.Errorf("%+v", some)
	}
	if none, _ := events(t, r, "analyst+clear", "after=now"); len(none) != 0 {
		t.Errorf("%+v", none)
	}
	// Without codes: keyed hashes, equal for equal ones.
	masked, _ := events(t, r, "analyst", "campaign="+b)
	if len(masked) != 3 || !strings.HasPrefix(masked[1].Customer_ID, "masked-") || !strings.HasPrefix(masked[1].Code, "masked-") || masked[1].Code != masked[2].Code || masked[1].Code == masked[1].Customer_ID {
		t.Errorf("%+v", masked)
	}
	if entries := r.Ask(t, "", "GET", "/v1/audit?kind=export", nil); !strings.Contains(string(entries.Body), `"action":"events"`) {
		t.Errorf("reading in clear is not recorded: %s", entries.Body)
	}
}

// follow opens a stream that does not end, and returns its lines.
func follow(t *testing.T, r *apitest.Rig, as, query string, header ...string) (<-chan string, *http.Response) {
	t.Helper()
	resp, err := http.DefaultClient.Do(r.Request(t, as, "GET", "/v1/events?follow=1&"+query, nil, header...))
	streamtest.Must(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(resp.Body); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return lines, resp
}

// next returns the next line that has a text.
func next(t *testing.T, lines <-chan string, text string) string {
	t.Helper()
	limit := time.After(apitest.Patience)
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				t.Fatalf("the stream ended before %q", text)
			}
			if strings.Contains(line, text) {
				return line
			}
		case <-limit:
			t.Fatalf("no line with %q", text)
		}
	}
}

// TestStreamsOfOneKey: a key has a few streams of events at once, and leaves the others to other keys.
func TestStreamsOfOneKey(t *testing.T) {
	r := apitest.Shared(t)
	r.Campaign(t, map[string]any{"codes": 1})
	r.Key(t, "analyst")
	r.Key(t, "analyst+clear")
	var last *http.Response
	for range 8 {
		lines, resp := follow(t, r, "analyst", "")
		next(t, lines, `"type":"campaign.created"`)
		last = resp
	}
	refused := r.Ask(t, "analyst", "GET", "/v1/events?follow=1", nil)
	if refused.Problem(t, 429, "overloaded", ""); refused.Header.Get("Retry-After") == "" {
		t.Error(refused.Header)
	}
	events(t, r, "analyst+clear", "")
	events(t, r, "", "")
	last.Body.Close()
	apitest.Until(t, "a stream that ended makes room", func() bool { return r.Ask(t, "analyst", "GET", "/v1/events", nil).Status == 200 })
}

// followEvents: new events arrive as NDJSON and as server-sent events; a browser continues with Last-Event-ID; the streams of a
// server that stops end. TestRevokedWhileStreaming ends those of a key.
func followEvents(t *testing.T, r *apitest.Rig) {
	c := r.Campaign(t, map[string]any{"codes": 100})
	r.Key(t, "analyst+clear")
	r.Key(t, "analyst")
	lines, _ := follow(t, r, "analyst+clear", "after=now")
	sse, resp := follow(t, r, "analyst", "campaign="+c, "Accept", "text/event-stream")
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Error(resp.Header)
	}
	next(t, sse, `"campaign":"`+c+`"`)
	code := r.Claim(t, c, "ann")
	next(t, lines, `"code":"`+code+`"`)
	next(t, lines, `"type":"cursor"`)
	id := "" // the newest one up to the claim
	for line := ""; line != "event: coupon.claimed"; line = next(t, sse, "") {
		if cursor, is := strings.CutPrefix(line, "id: "); is {
			id = cursor
		}
	}
	if data := next(t, sse, "data: "); !strings.Contains(data, `"customer_id":"masked-`) {
		t.Error(data)
	}
	r.Claim(t, c, "bob")
	if more, _ := events(t, r, "analyst+clear", "campaign="+c, "Last-Event-ID", id); len(more) != 1 || more[0].Type != "coupon.claimed" || more[0].Customer_ID != "bob" {
		t.Errorf("after the cursor of ann's claim: %+v", more)
	}

	// The server stops.
	stopped := make(chan error, 1)
	go func() { stopped <- r.Stop() }()
	next(t, lines, `"type":"end"`)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestEventTokens: a browser reads events with a token, once, by the rights that its key has then; no log has the token.
func TestEventTokens(t *testing.T) {
	var log bytes.Buffer
	r := apitest.Serve(t, func(o *server.Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	r.Campaign(t, map[string]any{"codes": 1})
	r.Key(t, "analyst")
	token := func() string {
		return r.Ask(t, "analyst", "POST", "/v1/events/tokens", map[string]any{}).Want(t, 201).Object(t)["token"].(string)
	}
	first, unused := token(), token()
	read := func(token string) *apitest.Response { return r.Ask(t, "-", "GET", "/v1/events?token="+token, nil) }
	if got := string(read(first).Want(t, 200).Body); !strings.Contains(got, "campaign.created") {
		t.Errorf("a token reads %s", got)
	}
	read(first).Problem(t, 401, "unauthorized", "")
	r.Ask(t, "-", "GET", "/v1/campaigns?token="+unused, nil).Problem(t, 401, "unauthorized", "")
	r.Ask(t, "", "DELETE", "/v1/keys/"+r.IDs["analyst"], nil).Want(t, 200)
	apitest.Until(t, "the key is over", func() bool { return r.Ask(t, "analyst", "GET", "/v1/events", nil).Status == 401 })
	read(unused).Problem(t, 401, "unauthorized", "")
	streamtest.Must(t, r.Stop())
	if text := log.String(); strings.Contains(text, first) || strings.Contains(text, unused) {
		t.Errorf("the log has a token: %s", text)
	}
}
