package natsd_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/access/callout"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth/authtest"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// producers are keys that are the ids of producers.
type producers struct{}

func (producers) Authenticate(key string) (access.Principal, error) {
	if !access.ValidID(key) {
		return access.Principal{}, access.ErrUnknownKey
	}
	return access.Principal{ID: key, Name: key, Role: access.Producer}, nil
}
func (producers) Watch(func(string)) func() { return func() {} }

const aKey, otherKey = "aaaaaaaa", "bbbbbbbb"

// accounts are those of natsauth, and the issuer of their users.
func accounts(t *testing.T) (callout.Issuer, streamtest.Option) {
	t.Helper()
	issuer, err := callout.NewIssuer()
	streamtest.Must(t, err)
	return issuer, authtest.Accounts(1, issuer)
}

// withLogIns answers the log-ins of a server with accounts.
func withLogIns(t *testing.T, opts ...streamtest.Option) *streamtest.Server {
	t.Helper()
	issuer, option := accounts(t)
	s := streamtest.Start(t, append(opts, option)...)
	logins := callout.New(s.Conn(t), 1, issuer, producers{}, streamtest.Logger(t))
	streamtest.Background(t, logins.Run)
	<-logins.Ready()
	return s
}

// limited starts a server for so many connections, with log-ins.
func limited(t *testing.T, connections int, opts ...streamtest.Option) *streamtest.Server {
	t.Helper()
	return withLogIns(t, append(opts, func(o *natsd.Options) { o.Connections = connections })...)
}

// logIn opens a socket and logs in with a key. It returns what the server sends after that.
func logIn(t *testing.T, s *streamtest.Server, key string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c := dialRaw(t, s, fmt.Sprintf("CONNECT {\"auth_token\":%q}\r\nPING\r\n", key))
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("logging in: %v", err)
		}
		if strings.HasPrefix(line, "PONG") {
			return c, r
		}
	}
}

// open counts the sockets that the server has not closed. Each gets a PING that must be answered, or, before a log-in, is waited
// for briefly.
func open(conns []net.Conn) (open int) {
	for _, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := io.Copy(io.Discard, c); err != nil { // the deadline: not closed
			open++
		}
	}
	return open
}

// limit returns one of the server's limits.
func limit(t *testing.T, s *streamtest.Server, what string) natsd.Limit {
	t.Helper()
	for _, l := range s.Limits() {
		if l.What == what {
			return l
		}
	}
	t.Fatalf("there is no limit of %s: %+v", what, s.Limits())
	return natsd.Limit{}
}

// answers checks that the servers' connection works, and a client with a key.
func answers(t *testing.T, s *streamtest.Server, servers *nats.Conn) {
	t.Helper()
	if err := servers.FlushTimeout(10 * time.Second); err != nil || servers.Reconnects != 0 {
		t.Errorf("the servers' connection: %v, reconnected %d times", err, servers.Reconnects)
	}
	nc, err := nats.Connect(s.ClientURL(), nats.Token(otherKey), nats.Timeout(10*time.Second))
	if err != nil {
		t.Fatalf("a client with a key: %v", err)
	}
	defer nc.Close()
	if err := nc.FlushTimeout(10 * time.Second); err != nil {
		t.Errorf("a client with a key: %v", err)
	}
}

// TestStrangersLeaveRoom: connections that do not log in are few from one address, also while Run alone looks.
func TestStrangersLeaveRoom(t *testing.T) {
	s := limited(t, 160, hurried)
	servers := s.Conn(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	var half []net.Conn
	for range 40 {
		half = append(half, dialRaw(t, s, ""))
	}
	// nats-server closes some itself: after two seconds without a log-in.
	streamtest.Eventually(t, "connections are closed over the limit", func() bool {
		return open(half) <= 10 && limit(t, s, "nats_strangers_per_address").Refused > 0
	})
	answers(t, s, servers)
	cancel()
	<-ended
}

// TestTheServerIsFull: more clients than the limit are refused at once, and those that are connected stay.
func TestTheServerIsFull(t *testing.T) {
	s := limited(t, 16)
	servers := s.Conn(t)
	streamtest.Must(t, servers.Flush())
	for range 20 {
		dialRaw(t, s, "")
	}
	// On a slow machine some leave before others come: after two seconds without a log-in.
	streamtest.Eventually(t, "the refused are counted", func() bool { s.Enforce(); return limit(t, s, "nats_connections").Refused > 0 })
	answers(t, s, servers)
}

// TestOneKeyLeavesRoom: the newest connections of a key over its limit are closed; another key's, and the servers', stay.
func TestOneKeyLeavesRoom(t *testing.T) {
	s := limited(t, 160)
	servers := s.Conn(t)
	var conns []net.Conn
	for range 8 {
		c, _ := logIn(t, s, aKey)
		conns = append(conns, c)
	}
	s.Enforce()
	if n, l := open(conns), limit(t, s, "nats_connections_per_key"); n != 5 || l.Refused != 3 || l.Limit != 5 {
		t.Errorf("%d connections of a key are open; %+v", n, l)
	}
	answers(t, s, servers)
}

// TestManySubscriptions: a connection with a key may make so many, and the next one is refused.
func TestManySubscriptions(t *testing.T) {
	s := limited(t, 160)
	c, r := logIn(t, s, aKey)
	var subs bytes.Buffer
	for i := range natsx.GuestSubscriptions + 50 {
		fmt.Fprintf(&subs, "SUB %s.%d %d\r\n", natsx.Inbox("producer", aKey), i, i)
	}
	subs.WriteString("PING\r\n")
	if _, err := subs.WriteTo(c); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for {
		line, err := r.ReadString('\n')
		streamtest.Must(t, err)
		if strings.HasPrefix(line, "PONG") {
			break
		}
		if strings.Contains(line, "maximum subscriptions exceeded") {
			refused++
		}
	}
	s.Enforce()
	if l := limit(t, s, "nats_subscriptions_per_connection"); refused != 50 || l.Used != natsx.GuestSubscriptions || l.Refused != 1 {
		t.Errorf("%d are refused; %+v", refused, l)
	}
}

// TestSlowReadersAreClosed: what waits for the clients of one key is bounded, also over many connections.
func TestSlowReadersAreClosed(t *testing.T) {
	const most = 8 << 20
	s := limited(t, 160, func(o *natsd.Options) { o.Pending = most })
	servers := s.Conn(t)
	inbox := natsx.Inbox("producer", aKey)
	for range 4 {
		c, _ := logIn(t, s, aKey)
		if _, err := fmt.Fprintf(c, "SUB %s.x 1\r\n", inbox); err != nil {
			t.Fatal(err)
		}
	}
	streamtest.Eventually(t, "all have subscribed", func() bool { s.Enforce(); return limit(t, s, "nats_subscriptions_per_connection").Used == 1 })
	for range 64 { // more than the sockets' buffers take
		streamtest.Must(t, servers.Publish(inbox+".x", make([]byte, 256<<10)))
	}
	streamtest.Must(t, servers.Flush())
	s.Enforce()
	if l := limit(t, s, "nats_pending_bytes_per_key"); l.Refused == 0 {
		t.Errorf("%+v", l)
	}
	s.Enforce()
	if l := limit(t, s, "nats_pending_bytes_per_key"); l.Used > most {
		t.Errorf("afterwards: %+v", l)
	}
	answers(t, s, servers)
}
