package web

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/streams/access"
)

// The limits of requests. Those of connections are in conns.go.
const (
	// HeaderWait, ReadWait and WriteWait cut off clients that send headers, send bodies or read answers too slowly. Streams
	// renew them, see [Stream].
	HeaderWait = 5 * time.Second
	ReadWait   = 10 * time.Second
	WriteWait  = 30 * time.Second
	// IdleWait ends connections without a request, and streams on which nothing arrives. It is longer than Prometheus's scrape
	// interval.
	IdleWait = 75 * time.Second
	// BodyPart bytes of a body that is a stream may take BodyWait: a client that sends nothing, or a byte now and then, is cut off.
	BodyPart = 32 << 10
	BodyWait = 30 * time.Second
	// MaxHeader bounds the headers of a request, in bytes.
	MaxHeader = 16 << 10
)

// NewServer returns a server with these limits, for requests that are well-formed.
func NewServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: wellFormed(h), MaxHeaderBytes: MaxHeader,
		ReadHeaderTimeout: HeaderWait, ReadTimeout: ReadWait, WriteTimeout: WriteWait, IdleTimeout: IdleWait,
	}
}

// Stream renews the deadlines of a request whose body or answer is a stream: each read and write gets its own time.
type Stream struct{ control *http.ResponseController }

// NewStream returns the Stream of a request. The deadlines of the server are off, so the body is read by Body, and each write needs
// Writing before it.
func NewStream(w http.ResponseWriter) Stream {
	s := Stream{http.NewResponseController(w)}
	_ = s.control.SetReadDeadline(time.Time{}) // fails only for writers of tests, which have no connection
	_ = s.control.SetWriteDeadline(time.Time{})
	return s
}

// Body returns a body that is a stream. Its deadline moves with what arrives: each BodyPart may take BodyWait. The time between
// two reads does not count: then the server is at work, for twice as long at most.
func (s Stream) Body(body io.Reader) io.Reader { return &paced{body: body, stream: s, left: BodyWait} }

// paced is a body that must arrive at a least rate.
type paced struct {
	body   io.Reader
	stream Stream
	got    int           // of this part
	left   time.Duration // for the rest of it
}

func (p *paced) Read(b []byte) (n int, err error) {
	started := time.Now()
	_ = p.stream.control.SetReadDeadline(started.Add(p.left))
	n, err = p.body.Read(b)
	if err == nil { // over HTTP/2 a deadline that passes between two reads ends the body; after the last one the server reads the rest
		_ = p.stream.control.SetReadDeadline(time.Now().Add(2 * BodyWait))
	}
	p.left -= time.Since(started)
	if p.got += n; p.got >= BodyPart {
		p.got, p.left = 0, BodyWait
	}
	return n, err
}

// Writing gives the next write wait of time.
func (s Stream) Writing(wait time.Duration) { _ = s.control.SetWriteDeadline(time.Now().Add(wait)) }

// Flush sends what was written.
func (s Stream) Flush() error { return s.control.Flush() }

// Duplex allows to write the answer while the body is read.
func (s Stream) Duplex() error { return s.control.EnableFullDuplex() }

// ErrRevoked is the cause of the end of a session whose key was revoked or replaced.
var ErrRevoked = errors.New("the key was revoked")

// Sessions are the requests in progress that outlive their check: streams. When a key is revoked or replaced, the contexts of
// its sessions end.
type Sessions struct {
	mu   sync.Mutex
	open map[string]map[*session]struct{} // by id of the key
}

// session is one request in progress.
type session struct{ cancel context.CancelCauseFunc }

// Start returns a context that ends with ctx, or with cause ErrRevoked when the key of p is revoked. end must be called.
// Credentials of the data directory are not revoked while a server runs.
func (s *Sessions) Start(ctx context.Context, p access.Principal) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if p.ID == "" {
		return ctx, func() { cancel(nil) }
	}
	one := &session{cancel}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[string]map[*session]struct{}{}
	}
	if s.open[p.ID] == nil {
		s.open[p.ID] = map[*session]struct{}{}
	}
	s.open[p.ID][one] = struct{}{}
	return ctx, func() {
		cancel(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(s.open[p.ID], one); len(s.open[p.ID]) == 0 {
			delete(s.open, p.ID)
		}
	}
}

// Revoke ends the sessions of a key. It is for access.Registry.Watch.
//
// A key may be revoked between its check and Start: Start's caller checks it again afterwards, with [Gate.Identify].
func (s *Sessions) Revoke(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.open[id] {
		one.cancel(ErrRevoked)
	}
}

// Quota bounds what clients hold at once: all together, and each one, so that it leaves some to others. K identifies a client.
type Quota[K comparable] struct {
	mu       sync.Mutex // guards the fields below
	all, one status.Limit
	by       map[K]int64
}

// NewQuota returns a Quota that is shown as what, and what with _per_ and who for each client.
func NewQuota[K comparable](what, who string, all, one int) *Quota[K] {
	return &Quota[K]{all: status.Limit{What: what, Limit: int64(all)}, one: status.Limit{What: what + "_per_" + who, Limit: int64(one)}, by: map[K]int64{}}
}

// Take takes one for a client, or returns the limit that is reached and counts that. Exempt = the client has no limit of its own.
func (q *Quota[K]) Take(client K, exempt bool) (over *status.Limit) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case !exempt && q.by[client] >= q.one.Limit:
		over = &q.one
	case q.all.Used >= q.all.Limit:
		over = &q.all
	default:
		q.all.Used++
		q.by[client]++
		return nil
	}
	over.Refused++
	reached := *over
	return &reached
}

// Release ends what Take took.
func (q *Quota[K]) Release(client K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all.Used--
	if q.by[client]--; q.by[client] == 0 {
		delete(q.by, client)
	}
}

// Limits are for the status.
func (q *Quota[K]) Limits() []status.Limit {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.one.Used = 0
	for _, n := range q.by {
		q.one.Used = max(q.one.Used, n)
	}
	return []status.Limit{q.all, q.one}
}
