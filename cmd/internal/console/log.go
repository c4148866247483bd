package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/push"
)

var logPages = []page{
	{path: "/log", name: "log", title: "Log", nav: true, operation: access.OpReadStatus, load: func(v *view) any {
		return logData{get[ops.LogShown](v, "/v1/log"), get[status.Status](v, "/v1/status")}
	}},
	{path: "/events", name: "events", title: "Events", nav: true, operation: access.OpReadEvents, load: func(*view) any { return nil }},
	{path: "/reminders", name: "senders", title: "Reminders", nav: true, operation: access.OpReadStatus, load: loadSenders},
	{path: "/reminders/{sender}", name: "sender", operation: access.OpReadDeadLetters, load: func(v *view) any {
		name := v.r.PathValue("sender")
		v.Title = "What " + name + " gave up"
		return list[ops.Page[ops.SenderLetter]](v, "/v1/senders/"+escape(name)+"/dead-letters")
	}},
}

var logActs = []act{
	{id: "discardSenderDeadLetters", title: "Discard all", fields: []string{"all"}, about: "Removes the oldest 1,000. They are not delivered.", cli: "scrip sender discard {sender} [--all={all}]"},
}

// logData is the log by its streams, and by its lanes.
type logData struct {
	Log    Part[ops.LogShown]
	Status Part[status.Status]
}

// sendersData are the senders of reminders by name.
type sendersData struct {
	Part[ops.Page[push.Position]]
	Names []string
}

func loadSenders(v *view) any {
	d := sendersData{Part: get[ops.Page[push.Position]](v, "/v1/senders", "limit", "1000")}
	for _, p := range d.Data.Items {
		if n := len(d.Names); n == 0 || d.Names[n-1] != p.Name {
			d.Names = append(d.Names, p.Name)
		}
	}
	return d
}

// Of are the positions of a sender.
func (d sendersData) Of(name string) (all []push.Position) {
	for _, p := range d.Data.Items {
		if p.Name == name {
			all = append(all, p)
		}
	}
	return all
}

func init() {
	moreRoutes = append(moreRoutes, route{"GET /follow", (*Console).follow})
}

const (
	// followRate is how many events a second a page follows: more are counted, and not shown.
	followRate = 200
	// followLife is how long a page follows before it connects again, where it goes on.
	followLife = 10 * time.Minute
)

// follow sends new events as rows of a table, from /v1/events as it is. Each viewer has filters, codes and campaigns of its own, so
// each has a reader of its own; the server bounds how many there are.
func (c *Console) follow(w http.ResponseWriter, r *http.Request) {
	v := c.view(w, r)
	if v == nil {
		return
	}
	path := "/v1/events?follow=1&after=now"
	for _, name := range []string{"types", "campaign"} {
		if value := v.value(name); value != "" {
			path += "&" + name + "=" + queryEscape(value)
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	f := &following{v: v, stream: web.NewStream(w), until: time.Now().Add(followLife), header: http.Header{}}
	c.V1.ServeHTTP(f, request(r, v.Who, http.MethodGet, path, nil))
	if f.failed.status != 0 {
		var b bytes.Buffer
		_ = templates["events"].ExecuteTemplate(&b, "why", f.failed.problem()) // to memory
		_, _ = w.Write(event("problem", b.Bytes()))
	}
}

// following turns lines of events into rows. Its Write fails when it is time to end, which ends the reader.
type following struct {
	v       *view
	stream  web.Stream
	until   time.Time
	header  http.Header
	rest    []byte
	failed  answer
	second  int64 // in which sent were sent
	sent    int
	skipped int
}

func (f *following) Header() http.Header         { return f.header }
func (f *following) Unwrap() http.ResponseWriter { return f.v.w }
func (f *following) Flush()                      { _ = f.stream.Flush() }

func (f *following) WriteHeader(status int) {
	if status >= 400 {
		f.failed.status = status
	}
}

// eventRow is an event as a row.
type eventRow struct {
	Type, Campaign string
	At             time.Time
	Rest           string
	Skipped        int
}

func (f *following) Write(b []byte) (int, error) {
	if f.failed.status != 0 {
		return f.failed.Write(b)
	}
	if time.Now().After(f.until) {
		return 0, fmt.Errorf("the page connects again")
	}
	f.rest = append(f.rest, b...)
	var out []byte
	for {
		line, rest, whole := bytes.Cut(f.rest, []byte("\n"))
		if !whole {
			break
		}
		f.rest = append([]byte(nil), rest...)
		row, ok := rowOf(line)
		if now := time.Now().Unix(); !ok || now == f.second && f.sent >= followRate {
			if ok {
				f.skipped++
			}
			continue
		} else if now != f.second {
			f.second, f.sent = now, 0
		}
		row.Skipped, f.skipped = f.skipped, 0
		f.sent++
		var html bytes.Buffer
		if err := templates["events"].ExecuteTemplate(&html, "event", row); err != nil {
			return 0, err
		}
		out = append(out, event("event", html.Bytes())...)
	}
	if out == nil {
		out = []byte(":\n\n")
	}
	f.stream.Writing(liveWait)
	if _, err := f.v.w.Write(out); err != nil {
		return 0, err
	}
	return len(b), f.stream.Flush()
}

// rowOf reads a line of /v1/events; ok is false for one that is no event, such as a cursor.
func rowOf(line []byte) (row eventRow, ok bool) {
	var known struct {
		Type, Campaign string
		At             time.Time
	}
	if json.Unmarshal(line, &known) != nil || known.Type == "" || known.At.IsZero() {
		return row, false
	}
	row = eventRow{Type: known.Type, Campaign: known.Campaign, At: known.At}
	var rest []string
	for _, r := range rows(line) {
		if r.Name != "type" && r.Name != "campaign" && r.Name != "at" && r.Name != "cursor" {
			rest = append(rest, r.Name+" "+r.Value)
		}
	}
	row.Rest = strings.Join(rest, ", ")
	return row, true
}
