package streamtest

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// refusal is a line of nats-server about a user of the servers' account, in an embedded server ($G) or another.
var refusal = regexp.MustCompile(`"(\$G|SCRIP)/[^"]*\\?" - (Publish|Subscription) Violation`)

// Violation reports whether a line of a log shows that NATS refused something to the servers' own user. What it refuses to users
// with keys is in other accounts.
func Violation(line string) bool {
	return strings.Contains(line, natsx.Refused) || refusal.MatchString(line)
}

// NoViolation fails the test for each line of a text that is a Violation.
func NoViolation(t testing.TB, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if Violation(line) {
			t.Errorf("NATS refused something to the servers' own user: %s", line)
		}
	}
}

// Strict returns a handler that passes everything on, and fails the test on a Violation.
func Strict(t testing.TB, to slog.Handler) slog.Handler { return strict{to, t} }

type strict struct {
	slog.Handler
	t testing.TB
}

// Enabled: errors are checked in any case.
func (s strict) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError || s.Handler.Enabled(ctx, level)
}

func (s strict) Handle(ctx context.Context, r slog.Record) error {
	if Violation(r.Message) {
		r.Attrs(func(a slog.Attr) bool { s.t.Errorf("a violation of the servers' own user: %s", a); return true })
		s.t.Errorf("NATS refused something to the servers' own user: %s", r.Message)
	}
	if !s.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return s.Handler.Handle(ctx, r)
}

func (s strict) WithAttrs(attrs []slog.Attr) slog.Handler {
	return strict{s.Handler.WithAttrs(attrs), s.t}
}
func (s strict) WithGroup(name string) slog.Handler { return strict{s.Handler.WithGroup(name), s.t} }

// Logger writes to the test's log, errors only: a server that is stopped under its clients warns a lot. It is Strict.
func Logger(t testing.TB) *slog.Logger {
	return slog.New(Strict(t, slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})))
}

// Refusing is for a test that tries what the servers' own user may not do: it does not fail for that.
func Refusing(o *natsd.Options) { o.Logger = slog.New(slog.DiscardHandler) }
