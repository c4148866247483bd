package web

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
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

// Body appends a request's body to buf. It reads at most `most` bytes; a longer body is the Problem 413, and the connection
// ends.
func Body(w http.ResponseWriter, r *http.Request, buf []byte, most int) ([]byte, *Problem) {
	if problem := CheckLength(w, r, int64(most)); problem != nil {
		return buf, problem
	}
	body, start := r.Body, len(buf)
	if r.ContentLength < 0 { // chunked: the length is not known
		body = http.MaxBytesReader(w, body, int64(most))
	}
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if int64(len(buf)-start) == r.ContentLength {
			return buf, nil
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return buf, nil
		default:
			return buf, unread(w, err, most)
		}
	}
}

// CheckLength returns the Problem 413 of a body that is announced as longer than most bytes, before any of it is read. The
// connection ends after the answer.
func CheckLength(w http.ResponseWriter, r *http.Request, most int64) *Problem {
	if r.ContentLength <= most {
		return nil
	}
	w.Header().Set("Connection", "close")
	return tooLarge(most)
}

// unread is the Problem of a body that could not be read.
func unread(w http.ResponseWriter, err error, most int) *Problem {
	w.Header().Set("Connection", "close")
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return tooLarge(int64(most))
	}
	if Late(err) {
		return New(TooSlow, "the body did not arrive within "+ReadWait.String())
	}
	return New(Malformed, "the body ended too early: "+err.Error())
}

// Late reports whether err is that of a deadline.
func Late(err error) bool {
	var n net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}

func tooLarge(most int64) *Problem {
	return New(TooLarge, fmt.Sprintf("the body is longer than %d bytes, the most that this route takes", most)).At("body", "too long")
}

// CheckMediaType returns the Problem 415 unless the body is of type want. A body without Content-Type is taken as of that type.
func CheckMediaType(r *http.Request, want string) *Problem {
	if given := r.Header["Content-Type"]; len(given) == 0 || len(given) == 1 && given[0] == want {
		return nil
	}
	return New(WrongMediaType, "Content-Type must be "+want).At("header.Content-Type", "must be "+want)
}

// Stream renews the deadlines of a request whose body or answer is a stream: each read and write gets its own time.
type Stream struct{ control *http.ResponseController }

// NewStream returns the Stream of a request. The deadlines of the server are off until the first Reading and Writing.
func NewStream(w http.ResponseWriter) Stream {
	s := Stream{http.NewResponseController(w)}
	_ = s.control.SetReadDeadline(time.Time{}) // fails only for writers of tests, which have no connection
	_ = s.control.SetWriteDeadline(time.Time{})
	return s
}

// Reading gives the next read wait of time.
func (s Stream) Reading(wait time.Duration) { _ = s.control.SetReadDeadline(time.Now().Add(wait)) }

// Writing gives the next write wait of time.
func (s Stream) Writing(wait time.Duration) { _ = s.control.SetWriteDeadline(time.Now().Add(wait)) }

// Flush sends what was written.
func (s Stream) Flush() error { return s.control.Flush() }

// Duplex allows to write the answer while the body is read.
func (s Stream) Duplex() error { return s.control.EnableFullDuplex() }

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
