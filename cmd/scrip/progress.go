package main

import (
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// bar shows a person how far something is. Without a person it does nothing; its methods need no checks.
type bar struct{ p *progressbar.ProgressBar }

// progress makes a bar of so many bytes; -1 = nobody knows.
func (m *Main) progress(what string, bytes int64) *bar {
	if !m.TerminalErr {
		return &bar{}
	}
	return &bar{progressbar.NewOptions64(bytes, barOptions(m.Err, what, progressbar.OptionShowBytes(true))...)}
}

// steps makes a bar of so many steps; 0 = nobody knows.
func (m *Main) steps(what string, n int) *bar {
	if !m.TerminalErr {
		return &bar{}
	}
	total := int64(n)
	if n == 0 {
		total = -1
	}
	return &bar{progressbar.NewOptions64(total, barOptions(m.Err, what, progressbar.OptionShowCount(), progressbar.OptionShowIts())...)}
}

func barOptions(to io.Writer, what string, more ...progressbar.Option) []progressbar.Option {
	return append([]progressbar.Option{
		progressbar.OptionSetWriter(to), progressbar.OptionSetDescription(what), progressbar.OptionSetWidth(24),
		progressbar.OptionThrottle(100 * time.Millisecond), progressbar.OptionSpinnerType(14),
		progressbar.OptionOnCompletion(func() { _, _ = io.WriteString(to, "\n") }),
	}, more...)
}

// Write counts bytes.
func (b *bar) Write(p []byte) (int, error) {
	if b.p != nil {
		_ = b.p.Add(len(p))
	}
	return len(p), nil
}

func (b *bar) step() {
	if b.p != nil {
		_ = b.p.Add(1)
	}
}

// clear makes room for a line of text.
func (b *bar) clear() {
	if b.p != nil {
		_ = b.p.Clear()
	}
}

func (b *bar) end() {
	if b.p != nil && !b.p.IsFinished() {
		_ = b.p.Finish()
	}
}
