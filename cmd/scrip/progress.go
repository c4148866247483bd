package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

const (
	barEvery = 100 * time.Millisecond // between two drawings
	barWidth = 24                     // characters
)

// bar shows progress on one line of a terminal. Without a terminal it draws nothing. Its methods are safe for concurrent
// use.
type bar struct {
	to      io.Writer // nil = no terminal
	bytes   bool      // bytes are counted, not steps
	mu      sync.Mutex
	what    string
	done    int64
	total   int64 // 0 or less = unknown
	started time.Time
	drawn   time.Time // last
	width   int       // of the drawn text
	ended   bool
}

// bar makes a bar of so many bytes or steps; 0 or less = unknown.
func (m *Main) bar(what string, total int64, bytes bool) *bar {
	if !m.TerminalErr {
		return &bar{}
	}
	return &bar{to: m.Err, what: what, total: total, bytes: bytes, started: time.Now()}
}

func (b *bar) shown() bool { return b.to != nil }

// Write counts bytes.
func (b *bar) Write(p []byte) (int, error) {
	b.add(len(p))
	return len(p), nil
}

func (b *bar) step() { b.add(1) }

func (b *bar) add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done += int64(n)
	b.draw(false)
}

// transferred changes how many bytes of a transfer are done. Neither number is exact to the byte, so only end fills the bar.
func (b *bar) transferred(done, total int64) { b.set("", done, max(total, done+1)) }

// set changes how far it is, and the text unless it is empty.
func (b *bar) set(what string, done, total int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done, b.total = done, total; what != "" {
		b.what = what
	}
	b.draw(false)
}

// clear makes room for a line of text.
func (b *bar) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shown() && b.width > 0 {
		_, _ = io.WriteString(b.to, "\r"+strings.Repeat(" ", b.width)+"\r")
		b.width = 0
	}
}

// endOr ends the bar, or removes it after an error.
func (b *bar) endOr(err error) {
	if err != nil {
		b.clear()
		return
	}
	b.end()
}

// end draws the bar as full, once.
func (b *bar) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.shown() || b.ended {
		return
	}
	if b.total > 0 {
		b.done = b.total
	}
	b.draw(true)
	b.ended = true
	_, _ = io.WriteString(b.to, "\n")
}

// draw replaces the line. The caller holds mu.
func (b *bar) draw(now bool) {
	if !b.shown() || b.ended || !now && time.Since(b.drawn) < barEvery {
		return
	}
	b.drawn = time.Now()
	took := time.Since(b.started)
	text := b.what
	switch {
	case b.total > 0:
		part := min(1, float64(b.done)/float64(b.total))
		text = fmt.Sprintf("%s %3.0f%% [%-*s] %s of %s", b.what, part*100, barWidth, strings.Repeat("=", int(part*barWidth)), b.amount(b.done), b.amount(b.total))
	case b.done > 0:
		text += " " + b.amount(b.done)
	}
	if seconds := took.Seconds(); b.bytes && seconds > 0 && b.done > 0 {
		text += fmt.Sprintf(", %s/s", b.amount(int64(float64(b.done)/seconds)))
	}
	if b.done > 0 && b.done < b.total {
		left := time.Duration(float64(took) / float64(b.done) * float64(b.total-b.done))
		text += fmt.Sprintf(", %s left", left.Round(time.Second))
	}
	width := len([]rune(text))
	_, _ = io.WriteString(b.to, "\r"+text+strings.Repeat(" ", max(0, b.width-width)))
	b.width = width
}

// amount is a number of bytes or of steps.
func (b *bar) amount(n int64) string {
	if !b.bytes {
		return grouped(uint64(max(0, n)))
	}
	value, unit := float64(n), "B"
	for _, larger := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if value < 1024 {
			break
		}
		value, unit = value/1024, larger
	}
	return fmt.Sprintf("%.3g %s", value, unit)
}
