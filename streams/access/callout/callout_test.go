package callout_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/access/callout"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// none is a registry without keys.
type none struct{}

func (none) Authenticate(string) (access.Principal, error) {
	return access.Principal{}, access.ErrUnknownKey
}
func (none) Watch(func(string)) func() { return func() {} }

// TestOnlyNATSIsAnswered: a message on the subject of log-ins that no nats-server sent gets no answer, whatever its reply
// subject, because answers are published with a server's permissions; and a start without trouble logs none.
func TestOnlyNATSIsAnswered(t *testing.T) {
	s := streamtest.Start(t)
	issuer, err := callout.NewIssuer()
	streamtest.Must(t, err)
	var log streamtest.Buffer
	r := callout.New(s.Conn(t), 1, issuer, none{}, slog.New(slog.NewTextHandler(&log, nil)))
	stop := streamtest.Background(t, r.Run)
	<-r.Ready()
	if log.String() != "" {
		t.Errorf("a start logs %s", log.String())
	}
	nc := s.Conn(t)
	answers, err := nc.SubscribeSync(">")
	streamtest.Must(t, err)
	sent := 0
	for _, reply := range []string{"scrip.evt.0", "_INBOX.x", "$SYS._INBOX.x"} {
		for _, body := range []string{"", "{}", "eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ.e30.AAAA", strings.Repeat("x", 10_000)} {
			streamtest.Must(t, nc.PublishRequest("$SYS.REQ.USER.AUTH", reply, []byte(body)))
			sent++
		}
	}
	// Run returns when all have been handled.
	streamtest.Eventually(t, "the malformed requests are logged", func() bool { return strings.Count(log.String(), "was not understood") == 4 })
	stop()
	streamtest.Must(t, nc.Flush())
	for range sent {
		m, err := answers.NextMsg(time.Minute)
		if err != nil || m.Subject != "$SYS.REQ.USER.AUTH" {
			t.Errorf("on the wire is %v, %v", m, err)
		}
	}
	if m, err := answers.NextMsg(time.Millisecond); !errors.Is(err, nats.ErrTimeout) {
		t.Errorf("an answer: %v, %v", m, err)
	}
}

// TestTheIssuerFollowsFromTheCodeKey: the same key, the same issuer; and the public key is one of NATS.
func TestTheIssuerFollowsFromTheCodeKey(t *testing.T) {
	a, err := callout.IssuerOf([32]byte{1})
	streamtest.Must(t, err)
	again, _ := callout.IssuerOf([32]byte{1})
	other, _ := callout.IssuerOf([32]byte{2})
	if a.Public() != again.Public() || a.Public() == other.Public() {
		t.Errorf("%s, %s, %s", a.Public(), again.Public(), other.Public())
	}
	if p := a.Public(); len(p) != 56 || p[0] != 'A' {
		t.Errorf("the public key is %s", p)
	}
}
