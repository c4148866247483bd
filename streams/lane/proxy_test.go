package lane_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// fault is what the proxy does to the next publish on a subject.
type fault int

const (
	noFault      fault = iota
	cutBefore          // the connection breaks before the publish reaches the server
	cutAfter           // the publish reaches the server, then the connection breaks: no ack
	swallowed          // the publish vanishes, the connection stays
	ackSwallowed       // the publish takes effect, the ack vanishes, the connection stays
	doubled            // the publish reaches the server twice
)

// proxy is between a client and the server and can apply faults of networks to one publish.
type proxy struct {
	t       *testing.T
	ln      net.Listener
	server  string
	subject string

	mu      sync.Mutex
	armed   fault
	turn    []fault // struck one after the other, at every pause-th publish
	pause   int
	seen    int    // publishes on the subject
	dropAck string // reply subject whose answer vanishes
	hits    int
}

// newProxy listens until the test ends.
func newProxy(t *testing.T, server, subject string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, ln: ln, server: strings.TrimPrefix(server, "nats://"), subject: subject}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	return p
}

func (p *proxy) url() string { return "nats://" + p.ln.Addr().String() }

// armAll strikes at every pause-th publish, with one fault after the other.
func (p *proxy) armAll(pause int, faults ...fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pause, p.turn = pause, faults
}

// struck is how many publishes were hit.
func (p *proxy) struck() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hits
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	conn, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer conn.Close()
	server := conn.(*net.TCPConn)
	go func() {
		p.copy(client, server, p.fromServer)
		_ = client.Close()
	}()
	p.copy(server, client, func(args []string, frame []byte) bool { return p.fromClient(client, server, args, frame) })
	_ = server.CloseWrite()
	_, _ = io.Copy(io.Discard, server)
}

// copy forwards protocol frames; the filter decides whether a message frame is forwarded.
func (p *proxy) copy(to io.Writer, from io.Reader, filter func(args []string, frame []byte) bool) {
	in := bufio.NewReaderSize(from, 1<<16)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		args := strings.Fields(string(line))
		frame := line
		if len(args) > 2 && (args[0] == "PUB" || args[0] == "HPUB" || args[0] == "MSG" || args[0] == "HMSG") {
			size, err := strconv.Atoi(args[len(args)-1])
			if err != nil {
				return
			}
			var buf bytes.Buffer
			buf.Write(line)
			if _, err := io.CopyN(&buf, in, int64(size)+2); err != nil {
				return
			}
			frame = buf.Bytes()
			if !filter(args, frame) {
				continue
			}
		}
		if _, err := to.Write(frame); err != nil {
			return
		}
	}
}

// fromClient strikes at the armed publish.
func (p *proxy) fromClient(client, server net.Conn, args []string, frame []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if args[0] != "HPUB" || args[1] != p.subject {
		return true
	}
	p.seen++
	if len(p.turn) > 0 && p.seen%p.pause == 0 {
		p.armed = p.turn[p.hits%len(p.turn)]
	}
	if p.armed == noFault {
		return true
	}
	f := p.armed
	p.armed = noFault
	p.hits++
	switch f {
	case cutBefore:
		_ = client.Close()
		return false
	case cutAfter:
		_ = client.Close()
		return true
	case swallowed:
		return false
	case ackSwallowed:
		p.dropAck = args[2]
		return true
	case doubled:
		_, _ = server.Write(frame)
		return true
	}
	return true
}

// fromServer swallows an ack.
func (p *proxy) fromServer(args []string, _ []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dropAck != "" && args[1] == p.dropAck {
		p.dropAck = ""
		return false
	}
	return true
}

// throughProxy returns options whose connection goes through a proxy that can strike at the lane's event writes.
func (r *rig) throughProxy() (*proxy, lane.Options) {
	r.t.Helper()
	p := newProxy(r.t, r.srv.ClientURL(), topology.Evt(0))
	nc, err := nats.Connect(p.url(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(nc.Close)
	o := r.options()
	if o.JetStream, err = jetstream.New(nc); err != nil {
		r.t.Fatal(err)
	}
	o.WriteTimeout = 300 * time.Millisecond
	return p, o
}
