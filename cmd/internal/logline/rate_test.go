package logline

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// written runs f with a log, and returns what was written when it was closed.
func written(t *testing.T, f func(l *Log)) (text string) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		var to bytes.Buffer
		l := Open(&to, Options{})
		f(l)
		l.Close(time.Second)
		text = to.String()
	})
	return text
}

var repeated = regexp.MustCompile(` repeated=(\d+)\n`)

// all is how many lines a text stands for.
func all(text string) int {
	n := strings.Count(text, "\n")
	for _, m := range repeated.FindAllStringSubmatch(text, -1) {
		more, _ := strconv.Atoi(m[1])
		n += more
	}
	return n
}

// TestAFlood: of a kind there are some lines at once and then one a second, whatever addresses, numbers and quoted texts the lines
// have. The last one of a flood is written within a second, or at the end, and each is counted.
func TestAFlood(t *testing.T) {
	const seconds, each = 10, 1000
	for name, one := range map[string]func(l *slog.Logger, foreign *log.Logger, n int){
		"own":  func(l *slog.Logger, _ *log.Logger, n int) { l.Warn("it failed", "try", n) },
		"with": func(l *slog.Logger, _ *log.Logger, n int) { l.With("lane", 1).Warn("it failed", "try", n) },
		"foreign": func(_ *slog.Logger, f *log.Logger, n int) {
			f.Printf("http: TLS handshake error from 10.0.0.%d:%d: EOF", n, n)
		},
		"quoted": func(_ *slog.Logger, f *log.Logger, n int) {
			f.Printf("Unsolicited response received on idle HTTP channel starting with %q; err=<nil>", strings.Repeat(`x "`, n%7))
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := written(t, func(l *Log) {
				foreign := slog.NewLogLogger(l.Logger().Handler(), slog.LevelInfo)
				for range seconds {
					for n := range each {
						one(l.Logger(), foreign, n)
					}
					time.Sleep(time.Second)
				}
				one(l.Logger(), foreign, each)
			})
			if lines := strings.Count(text, "\n"); lines < seconds || lines > atOnce+seconds+1 {
				t.Errorf("%d lines in %d s", lines, seconds)
			}
			if got := all(text); got != seconds*each+1 {
				t.Errorf("the lines stand for %d of %d", got, seconds*each+1)
			}
		})
	}
}

// TestWhatAFloodHides: nothing but lines of its kind. A kind is a message at a level, of a lane or lease.
func TestWhatAFloodHides(t *testing.T) {
	text := written(t, func(l *Log) {
		for range 100 {
			l.Logger().Warn("it failed", "lane", 1)
			l.Logger().Debug("not of this level")
		}
		l.Logger().With("lane", 2).Warn("it failed")
		l.Logger().Warn("it failed", "key", "lane.3")
		l.Logger().Error("it failed", "lane", 1)
		l.Logger().Warn("it works", "lane", 1)
		before, _ := l.Logger().Handler().(*rated)
		if n := len(before.by); n != 5 {
			t.Errorf("%d kinds", n)
		}
	})
	for _, want := range []string{"level=WARN msg=\"it failed\" lane=2\n", "key=lane.3\n", "level=ERROR msg=\"it failed\" lane=1\n", "msg=\"it works\" lane=1\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing: %s", want, text)
		}
	}
}

// TestKindsAreBounded: texts that are all different take a bounded memory, and one rate when it is full.
func TestKindsAreBounded(t *testing.T) {
	name := func(n int) string {
		return strings.NewReplacer("0", "a", "1", "b").Replace(strconv.FormatInt(int64(n), 2))
	}
	text := written(t, func(l *Log) {
		for n := range 2 * maxKinds {
			l.Logger().Warn(name(n))
		}
		if n := len(l.rates.by); n > maxKinds+1 {
			t.Errorf("%d kinds", n)
		}
		time.Sleep(2 * atOnce * lineEvery)
		l.Logger().Warn("later")
		if n := len(l.rates.by); n > 2 {
			t.Errorf("%d kinds are remembered for nothing", n)
		}
	})
	if lines := strings.Count(text, "\n"); lines > maxKinds+atOnce+3 || all(text) != 2*maxKinds+1 {
		t.Errorf("%d lines, which stand for %d", lines, all(text))
	}
}

// TestALongText is cut; what else a line has is not.
func TestALongText(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	text := written(t, func(l *Log) {
		l.Logger().Warn(long, "text", long, "err", errors.New(long), "wrapped", fmt.Errorf("w: %w", errors.New(long)), "n", 7)
	})
	if len(text) > 5*maxText || !strings.HasSuffix(text, " n=7\n") {
		t.Errorf("%d bytes, which end with %q", len(text), text[max(0, len(text)-20):])
	}
}
