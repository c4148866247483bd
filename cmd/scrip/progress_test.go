package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestBar: a line is replaced by the next, and a clear leaves nothing of it.
func TestBar(t *testing.T) {
	var out bytes.Buffer
	m := &Main{Err: &out, TerminalErr: true}
	b := m.bar("loading", 0, false)
	b.step()
	if !strings.HasPrefix(out.String(), "\rloading 1") {
		t.Errorf("%q", out.String())
	}
	b.drawn = time.Time{}
	b.set("copying", 1000, 2000)
	if !strings.Contains(out.String(), "\rcopying  50% [============            ] 1,000 of 2,000, ") {
		t.Errorf("%q", out.String())
	}
	out.Reset()
	b.clear()
	if text := out.String(); !strings.HasPrefix(text, "\r ") || !strings.HasSuffix(text, " \r") || strings.TrimSpace(text) != "" {
		t.Errorf("cleared by %q", text)
	}
	out.Reset()
	b.end()
	b.end()
	if text := out.String(); !strings.Contains(text, "100% [========================] 2,000 of 2,000") || strings.Count(text, "\n") != 1 {
		t.Errorf("ended by %q", text)
	}
	bytesBar := m.bar("importing", 3<<20, true)
	out.Reset()
	if n, err := bytesBar.Write(make([]byte, 3<<19)); n != 3<<19 || err != nil || !strings.Contains(out.String(), "1.5 MiB of 3 MiB, ") {
		t.Errorf("%d, %v, %q", n, err, out.String())
	}
	out.Reset()
	m.TerminalErr = false
	silent := m.bar("importing", 1, true)
	silent.step()
	silent.clear()
	silent.end()
	if out.Len() > 0 {
		t.Errorf("without a terminal: %q", out.String())
	}
}
