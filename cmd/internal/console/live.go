package console

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/streams/access"
)

const (
	// liveEvery is how often a part that is watched is rendered.
	liveEvery = time.Second
	// liveQuiet is after how long a viewer of what does not change gets a sign of life.
	liveQuiet = 15 * time.Second
	// liveWait is how long a browser may take nothing.
	liveWait = 30 * time.Second
	// liveLife is how long a stream lasts. The browser opens another one, whose log-in is checked.
	liveLife = 10 * time.Minute
)

// hub has the parts that are watched, each rendered once for all viewers with the same rights.
//
//	first viewer ──> a goroutine: once a second load, render, compare ──> each viewer, by a channel of one
//	last one goes ──> it ends
//
// A viewer that is slow misses parts, and gets the newest. Nothing waits for it.
type hub struct {
	mu     sync.Mutex
	topics map[string]*topic // by path and rights
}

// topic is a part that is watched.
type topic struct {
	viewers map[chan []byte]struct{}
	last    []byte
	end     context.CancelFunc
}

// watch adds a viewer of a topic. The first one starts run.
func (h *hub) watch(name string, run func(ctx context.Context, send func([]byte))) (parts chan []byte, leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.topics == nil {
		h.topics = map[string]*topic{}
	}
	t := h.topics[name]
	if t == nil {
		ctx, cancel := context.WithCancel(context.Background())
		t = &topic{viewers: map[chan []byte]struct{}{}, end: cancel}
		h.topics[name] = t
		go run(ctx, func(part []byte) { h.send(t, part) })
	}
	parts = make(chan []byte, 1)
	t.viewers[parts] = struct{}{}
	if t.last != nil {
		parts <- t.last
	}
	return parts, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if delete(t.viewers, parts); len(t.viewers) == 0 {
			t.end()
			delete(h.topics, name)
		}
	}
}

// send gives a part that is new to all viewers.
func (h *hub) send(t *topic, part []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if bytes.Equal(part, t.last) {
		return
	}
	t.last = part
	for v := range t.viewers {
		select {
		case <-v: // an older one that was not taken
		default:
		}
		v <- part
	}
}

// serveLive sends the live part of a page, whenever it has changed, as server-sent events.
func (c *Console) serveLive(w http.ResponseWriter, r *http.Request, p *page) {
	v := c.view(w, r)
	if v == nil {
		return
	}
	v.Page = p
	if problem := v.allowed(); problem != nil {
		problem.Write(w)
		return
	}
	ctx, end := c.Sessions.Start(r.Context(), v.Who)
	defer end()
	if problem := c.LogIns.Gate.Still(v.Who); problem != nil { // it was revoked in this moment
		v.fail(problem)
		return
	}
	viewer := access.Principal{Name: "console", Role: v.Who.Role, Campaigns: v.Who.Campaigns} // sees no codes
	parts, leave := c.hub.watch(fmt.Sprintf("%s %s %q", r.URL.Path, viewer.Role, viewer.Campaigns), func(ctx context.Context, send func([]byte)) {
		c.renderLive(ctx, r, p, viewer, send)
	})
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	stream := web.NewStream(w)
	quiet := time.NewTicker(liveQuiet)
	defer quiet.Stop()
	limit := time.NewTimer(liveLife)
	defer limit.Stop()
	for {
		var part []byte
		select {
		case part = <-parts:
		case <-quiet.C:
			part = []byte(":\n\n")
		case <-limit.C:
			return
		case <-c.API.Stopped():
			return
		case <-ctx.Done():
			return
		}
		stream.Writing(liveWait)
		if _, err := w.Write(part); err != nil || stream.Flush() != nil {
			return
		}
	}
}

// renderLive renders the live part of a page once a second until ctx ends.
func (c *Console) renderLive(ctx context.Context, first *http.Request, p *page, viewer access.Principal, send func([]byte)) {
	r := first.Clone(ctx)
	r.URL.RawQuery, r.URL.Path = "", r.URL.Path[len("/live"):]
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	for {
		v := &view{c: c, r: r, Who: viewer, Page: p, Live: true}
		if v.Data = p.load(v); ctx.Err() == nil {
			var b bytes.Buffer
			part := "live"
			if v.Problem != nil {
				part = "problem"
			}
			if err := templates[p.name].ExecuteTemplate(&b, part, v); err != nil {
				c.Logger.Error("a live part cannot be rendered", "page", p.name, "err", err)
				return
			}
			send(event("live", b.Bytes()))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// event is a server-sent event. Its data are lines.
func event(name string, data []byte) []byte {
	b := append([]byte("event: "), name...)
	for line := range bytes.Lines(data) {
		b = append(append(b, "\ndata: "...), bytes.TrimRight(line, "\r\n")...)
	}
	return append(b, "\n\n"...)
}
