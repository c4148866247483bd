package logline

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

const (
	// atOnce is how many lines of a kind are written at once. Then there is one each lineEvery.
	atOnce    = 16
	lineEvery = time.Second
	// maxText is the length of a text in a line, in bytes: errors quote what strangers have sent.
	maxText = 512
	// maxKinds bounds the kinds that are remembered. Further ones are one kind together.
	maxKinds = 4096
	// kindWords is how many words of a message make its kind.
	kindWords = 8
	// ratedBefore starts the lines of nats-server. Package natsd has bounded them, by kinds of which it knows more.
	ratedBefore = "nats: "
)

// parts are the attributes that are part of a kind: what happens to one lane, or to one lease, hides nothing of another.
var parts = []string{"lane", "key"}

// kind is what was written of the lines of one kind.
type kind struct {
	free  time.Time // when all atOnce lines may be written again
	late  *slog.Record
	to    slog.Handler
	left  int // lines left out, without late
	timer *time.Timer
}

// rates are the kinds of a log.
type rates struct {
	mu sync.Mutex // guards the fields below
	by map[string]*kind
}

// rated is a handler that writes lines of each kind at a bounded rate. A line beyond it waits until it may be written. If
// there is another one of its kind by then, that one takes its place, and has the number of those left out, as repeated.
// Debug lines have no bound: who turns them on wants each.
type rated struct {
	*rates
	next slog.Handler
	part string // of WithAttrs
}

func (h *rated) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *rated) WithAttrs(attrs []slog.Attr) slog.Handler {
	of := &rated{h.rates, h.next.WithAttrs(attrs), h.part}
	for _, a := range attrs {
		of.note(a)
	}
	return of
}

func (h *rated) WithGroup(name string) slog.Handler {
	return &rated{h.rates, h.next.WithGroup(name), h.part}
}

// note takes in an attribute, and returns whether to go on.
func (h *rated) note(a slog.Attr) bool {
	if slices.Contains(parts, a.Key) {
		h.part += a.Value.String() + " "
	}
	return true
}

func (h *rated) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo || strings.HasPrefix(r.Message, ratedBefore) {
		return h.next.Handle(ctx, r)
	}
	at := rated{part: h.part}
	r.Attrs(at.note)
	now := time.Now()
	h.mu.Lock()
	k := h.kind(r.Level.String()+" "+at.part+kindOf(r.Message), now)
	if k.late == nil && k.free.Sub(now) <= (atOnce-1)*lineEvery {
		k.take(now)
		h.mu.Unlock()
		return h.next.Handle(ctx, r)
	}
	defer h.mu.Unlock()
	if k.late != nil {
		k.left++
	} else {
		k.timer = time.AfterFunc(k.free.Sub(now)-(atOnce-1)*lineEvery, func() { h.writeLate(k) })
	}
	late := r.Clone()
	k.late, k.to = &late, h.next
	return nil
}

// take counts a line.
func (k *kind) take(now time.Time) {
	if k.free.Before(now) {
		k.free = now
	}
	k.free = k.free.Add(lineEvery)
}

// kind returns the kind of a name. A new one takes the place of those that are as new.
func (h *rates) kind(name string, now time.Time) *kind {
	if k := h.by[name]; k != nil {
		return k
	}
	if len(h.by) >= maxKinds {
		for other, k := range h.by {
			if k.late == nil && !k.free.After(now) {
				delete(h.by, other)
			}
		}
	}
	if len(h.by) >= maxKinds {
		name = ""
	}
	if h.by[name] == nil {
		h.by[name] = &kind{}
	}
	return h.by[name]
}

// writeLate writes the line of a kind that waits.
func (h *rates) writeLate(k *kind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if k.late == nil {
		return
	}
	k.timer.Stop()
	k.take(time.Now())
	if k.left > 0 {
		k.late.AddAttrs(slog.Int("repeated", k.left))
	}
	_ = k.to.Handle(context.Background(), *k.late) // into memory
	k.late, k.to, k.left = nil, nil, 0
}

// flush writes all lines that wait, before the log is closed.
func (h *rates) flush() {
	h.mu.Lock()
	waiting := make([]*kind, 0, len(h.by))
	for _, k := range h.by {
		waiting = append(waiting, k)
	}
	h.mu.Unlock()
	for _, k := range waiting {
		h.writeLate(k)
	}
}

// kindOf returns the first words of a message without what differs from line to line in those of other packages: quoted
// texts, and words with digits, such as addresses.
func kindOf(message string) string {
	words := 0
	var b strings.Builder
	for message != "" && words < kindWords {
		message = strings.TrimLeft(message, " ")
		if strings.HasPrefix(message, `"`) {
			message = message[quoted(message):]
			continue
		}
		word := message
		if end := strings.IndexAny(message[min(1, len(message)):], ` "`); end >= 0 {
			word = message[:end+1]
		}
		message = message[len(word):]
		if !strings.ContainsAny(word, "0123456789") {
			b.WriteString(word + " ")
			words++
		}
	}
	return b.String()
}

// quoted returns the length of the quoted text that a text starts with.
func quoted(text string) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// shorten cuts what is long in a line.
func shorten(_ []string, a slog.Attr) slog.Attr {
	text := ""
	switch v := a.Value; v.Kind() {
	case slog.KindString:
		text = v.String()
	case slog.KindAny:
		if err, is := v.Any().(error); is && err != nil {
			text = err.Error()
		}
	}
	if len(text) > maxText {
		a.Value = slog.StringValue(wire.Shorten(text, maxText))
	}
	return a
}
