package callout_test

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/access/callout"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth/authtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// one is a registry of the key good. It counts the keys that were tried.
type one struct {
	none
	tried *atomic.Int64
}

func (o one) Authenticate(key string) (access.Principal, error) {
	o.tried.Add(1)
	if key != "good" {
		return access.Principal{}, access.ErrUnknownKey
	}
	return access.Principal{ID: "aaaaaaaa", Name: "shop", Role: access.Producer}, nil
}

// knocked is a server with log-ins. knock tries a key there, and tried has how many were.
func knocked(t testing.TB, strangers *access.Strangers) (knock func(key string) net.Conn, tried *atomic.Int64) {
	t.Helper()
	issuer, err := callout.NewIssuer()
	streamtest.Must(t, err)
	s := streamtest.Start(t, authtest.Accounts(1, issuer))
	tried = &atomic.Int64{}
	logins := callout.New(s.Conn(t), 1, issuer, one{tried: tried}, streamtest.Logger(t))
	logins.Strangers = strangers
	streamtest.Background(t, logins.Run)
	<-logins.Ready()
	return func(key string) net.Conn {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.ClientURL(), "nats://"))
		streamtest.Must(t, err)
		_, err = c.Read(make([]byte, 8192)) // INFO
		streamtest.Must(t, err)
		_, err = fmt.Fprintf(c, "CONNECT {\"verbose\":false,\"auth_token\":%q}\r\nPING\r\n", key)
		streamtest.Must(t, err)
		return c
	}, tried
}

// TestAKeyBesideStrangers: a key opens at an address from which too many wrong ones came.
func TestAKeyBesideStrangers(t *testing.T) {
	strangers := access.NewStrangers(nil)
	knock, tried := knocked(t, strangers)
	const wrong = 30
	for range wrong {
		_ = knock("bad").Close()
	}
	streamtest.Eventually(t, "the keys are tried", func() bool { return tried.Load() == wrong })
	if !strangers.Wrong(access.DoorNATS, netip.MustParseAddr("127.0.0.1")) {
		t.Error("the wrong keys were not counted")
	}
	c := knock("good")
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	lines := bufio.NewScanner(c)
	for lines.Scan() && lines.Text() == "PING" { // which it sends to strangers, too
	}
	if lines.Text() != "PONG" {
		t.Errorf("a key of that address is answered %q", lines.Text())
	}
}

// TestStrangersGetNoAnswer: beyond the rate of an address nothing is signed for a wrong key.
func TestStrangersGetNoAnswer(t *testing.T) {
	s := streamtest.Start(t)
	issuer, err := callout.NewIssuer()
	streamtest.Must(t, err)
	tried := &atomic.Int64{}
	logins := callout.New(s.Conn(t), 1, issuer, one{tried: tried}, streamtest.Logger(t))
	logins.Strangers = access.NewStrangers(nil)
	stop := streamtest.Background(t, logins.Run)
	<-logins.Ready()
	nc := s.Conn(t)
	answers, err := nc.SubscribeSync("$SYS._INBOX.>")
	streamtest.Must(t, err)
	signer, err := nkeys.CreateServer()
	streamtest.Must(t, err)
	user, err := nkeys.CreateUser()
	streamtest.Must(t, err)
	name, err := user.PublicKey()
	streamtest.Must(t, err)
	for from, keys := range map[string][]string{"192.0.2.1": {"bad", "good"}, "192.0.2.2": {"bad"}, "2001:db8::1": {"bad"}, "2001:db8::2": {"bad"}} {
		for _, key := range keys {
			for range 100 {
				request := jwt.NewAuthorizationRequestClaims(issuer.Public())
				request.UserNkey, request.ClientInformation.Host, request.ConnectOptions.Token = name, from, key
				text, err := request.Encode(signer)
				streamtest.Must(t, err)
				network, _, _ := strings.Cut(from, "::")
				streamtest.Must(t, nc.PublishRequest("$SYS.REQ.USER.AUTH", "$SYS._INBOX."+strings.ReplaceAll(network, ".", "_")+"."+key, []byte(text)))
			}
		}
	}
	streamtest.Eventually(t, "the keys are tried", func() bool { return tried.Load() == 500 })
	stop() // all have been answered
	streamtest.Must(t, nc.Flush())
	got := map[string]int{}
	for {
		m, err := answers.NextMsg(time.Millisecond)
		if err != nil {
			break
		}
		got[m.Subject]++
	}
	for subject, want := range map[string]int{"192_0_2_1.bad": 10, "192_0_2_1.good": 100, "192_0_2_2.bad": 10, "2001:db8.bad": 10} {
		if n := got["$SYS._INBOX."+subject]; n < want || n > want+3 { // a second has another attempt
			t.Errorf("%s: %d answers, expected %d", subject, n, want)
		}
	}
}

// BenchmarkWrongKey: what a log-in with a wrong key costs in CPU, answered and beyond the rate of its address. The figures have the
// client's part, which closes the connection at once.
func BenchmarkWrongKey(b *testing.B) {
	cpu := func() time.Duration {
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for name, strangers := range map[string]*access.Strangers{"answered": nil, "beyond": access.NewStrangers(nil)} {
		b.Run(name, func(b *testing.B) {
			knock, tried := knocked(b, strangers)
			const warm = 20
			for range warm {
				_ = knock("bad").Close()
			}
			streamtest.Eventually(b, "the keys are tried", func() bool { return tried.Load() == warm })
			start := cpu()
			b.ResetTimer()
			for n := range b.N {
				_ = knock("bad").Close()
				for tried.Load() < int64(warm+n-64) { // responders are busy
					time.Sleep(time.Millisecond)
				}
			}
			streamtest.Eventually(b, "the keys are tried", func() bool { return tried.Load() == int64(warm+b.N) })
			b.ReportMetric(float64((cpu()-start).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}
