package streamtest

import (
	"bytes"
	"encoding/json"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// Recorder collects the subjects that connections publish and subscribe to, by user: of JetStream, acknowledgements and answers, too,
// as it reads what is written to the socket. Give Option to each connection.
type Recorder struct {
	mu   sync.Mutex
	seen map[Recorded]bool
}

// Recorded is a subject that a user published or subscribed to.
type Recorded struct {
	User    string // its name; of a key the role
	Does    string // publish or subscribe
	Subject string
}

// Option is for a connection without TLS whose subjects are collected.
func (r *Recorder) Option() nats.Option { return nats.SetCustomDialer(recordingDialer{r}) }

// All returns what was recorded, in no order.
func (r *Recorder) All() (all []Recorded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for one := range r.seen {
		all = append(all, one)
	}
	return all
}

func (r *Recorder) saw(one Recorded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = map[Recorded]bool{}
	}
	r.seen[one] = true
}

type recordingDialer struct{ to *Recorder }

func (d recordingDialer) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return &recordedConn{Conn: c, to: d.to}, nil
}

// recordedConn reads the client protocol of what is written: lines, and after PUB and HPUB a payload. Writes end anywhere.
type recordedConn struct {
	net.Conn
	to *Recorder

	mu   sync.Mutex // guards the fields below
	user string
	line []byte
	skip int // bytes of a payload and its end that are left
}

func (c *recordedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	for rest := p[:n]; len(rest) > 0; {
		if c.skip > 0 {
			some := min(c.skip, len(rest))
			c.skip, rest = c.skip-some, rest[some:]
			continue
		}
		text, after, whole := bytes.Cut(rest, []byte("\n"))
		c.line, rest = append(c.line, text...), after
		if whole {
			c.read(strings.TrimSuffix(string(c.line), "\r"))
			c.line = c.line[:0]
		}
	}
	return n, err
}

func (c *recordedConn) read(line string) {
	op, rest, _ := strings.Cut(line, " ")
	words := strings.Fields(rest)
	switch {
	case op == "CONNECT":
		var who struct {
			User  string `json:"user"`
			Token string `json:"auth_token"`
		}
		_ = json.Unmarshal([]byte(rest), &who) // of nats.go
		c.user = who.User
		if parts := strings.Split(who.Token+who.User, "_"); len(parts) == 3 && parts[0] == "sk" {
			c.user = parts[1]
		}
	case (op == "PUB" || op == "HPUB") && len(words) > 1:
		c.to.saw(Recorded{c.user, "publish", words[0]})
		size, _ := strconv.Atoi(words[len(words)-1]) // of nats.go
		c.skip = size + len("\r\n")
	case op == "SUB" && len(words) > 1:
		c.to.saw(Recorded{c.user, "subscribe", words[0]})
	}
}
