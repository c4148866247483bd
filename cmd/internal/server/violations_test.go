package server

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	dto "github.com/prometheus/client_model/go"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// A violation is counted each time. Its line names the subject, once a minute, and is one that every harness of tests fails on.
func TestViolationsAreCountedAndLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log streamtest.Buffer
		v := newViolations(slog.New(slog.NewTextHandler(&log, nil)))
		refused := func(subject string) error {
			return fmt.Errorf("%w: Permissions Violation for Publish to %q", nats.ErrPermissionViolation, subject)
		}
		for range 3 {
			if !v.saw("lanes", refused("scrip.evt.7")) {
				t.Error("not seen")
			}
		}
		v.saw("lanes", fmt.Errorf(`%w: Permissions Violation for Subscription to "scrip.a" using queue "q"`, nats.ErrPermissionViolation))
		if v.saw("lanes", errors.New("nats: slow consumer")) {
			t.Error("another error is taken for one")
		}
		time.Sleep(violationEvery)
		v.saw("lanes", refused("scrip.evt.7"))
		for n := range 10 * mostViolations { // acknowledgements, which differ in their numbers
			v.saw("lanes", refused(fmt.Sprint("$JS.ACK.", n)))
		}
		text := log.String()
		streamtest.Equal(t, "lines of a subject", strings.Count(text, "subject=scrip.evt.7"), 2)
		streamtest.Equal(t, "lines", strings.Count(text, "level=ERROR"), 2+mostViolations)
		if !strings.Contains(text, "of=lanes refused=subscription subject=scrip.a") || !streamtest.Violation(strings.SplitN(text, "\n", 2)[0]) {
			t.Errorf("the lines are\n%s", text)
		}
		var m dto.Metric
		streamtest.Must(t, v.total.Write(&m))
		streamtest.Equal(t, "counted", m.GetCounter().GetValue(), 5+10*mostViolations)
	})
}

// The server's own lines about its user are seen, too, and those about users with keys are not.
func TestViolationIsOfTheServersAlone(t *testing.T) {
	for line, want := range map[string]bool{
		`nats: 127.0.0.1:4 - cid:9 - "v1.55.0:go:scrip lanes x" - "$G/user:test" - Publish Violation - Subject "a"`:             true,
		`msg="nats: 127.0.0.1:4 - cid:9 - \"v1.55.0:go:x\" - \"$G/user:test\" - Subscription Violation - Subject \"a\", SID 1"`: true,
		`nats: 127.0.0.1:4 - cid:9 - "v1.55.0:go:x" - "SHOP/jwt:U" - Publish Violation - Subject "a"`:                           false,
		`level=ERROR msg="` + natsx.Refused + `" subject=a`:                                                                     true,
		`nats: slow consumer`: false,
	} {
		streamtest.Equal(t, line, streamtest.Violation(line), want)
	}
}
