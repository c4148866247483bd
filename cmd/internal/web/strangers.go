package web

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/access"
)

const (
	// strangerWait is how long a request of a stranger beyond the rate is held.
	strangerWait = time.Second
	// maxHeld bounds the requests that are held at once.
	maxHeld = MaxConns
)

// HoldStrangers slows down who has no key: requests that were refused before their sender was known, or that were reset.
//
//	request ──> handler ── Identified ──> answer
//	               └── 4xx, 303 to the log-in, or a reset, of a sender who is not known ──> Strangers.Wrong(address) ── one too many ──> held 1 s
//
// known identifies the sender of a request that was refused before a handler did, such as one without a route.
//
// A held request keeps its place: the only one of a connection with HTTP/1.1. With HTTP/2 the answer ends the connection
// (GOAWAY), and one whose requests were all reset is ended by package http, once so many are in progress. That costs less than
// another connection would. What is served without a key, such as probes and the log-in page, is not slowed down.
func HoldStrangers(counts *access.Strangers, known func(*http.Request) bool, next http.Handler) http.Handler {
	held := make(chan struct{}, maxHeld)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one := &stranger{ResponseWriter: w, r: r, counts: counts, known: known}
		next.ServeHTTP(one, r)
		if r.Context().Err() != nil {
			one.count()
		}
		if !one.over {
			return
		}
		select {
		case held <- struct{}{}:
			time.Sleep(strangerWait) // whether the client waits or not
			<-held
		default:
		}
	})
}

// stranger is a request whose sender is not known yet.
type stranger struct {
	http.ResponseWriter
	r      *http.Request
	counts *access.Strangers
	known  func(*http.Request) bool

	identified, wrong bool // a handler has identified the sender; wrong = without a key in force
	counted, over     bool
}

// Identified is called for the answer to a request once its sender is known to have a key in force, or credentials, or none.
func Identified(w http.ResponseWriter, known bool) {
	for {
		switch of := w.(type) {
		case *stranger:
			of.identified, of.wrong = true, !known
			return
		case interface{ Unwrap() http.ResponseWriter }:
			w = of.Unwrap()
		default:
			return
		}
	}
}

// count counts a request unless its sender is known.
func (s *stranger) count() {
	if s.counted || s.identified && !s.wrong {
		return
	}
	s.counted = true
	if !s.identified && s.known(s.r) {
		return
	}
	from, ok := address(s.r.RemoteAddr)
	if !ok {
		from = netip.IPv6Unspecified()
	}
	s.over = s.counts.Wrong(access.DoorHTTP, from)
}

func (s *stranger) WriteHeader(status int) {
	if status/100 == 4 || status == http.StatusSeeOther { // to the log-in
		s.count()
		if s.over && s.r.ProtoMajor == 2 {
			s.Header().Set("Connection", "close")
		}
	}
	s.ResponseWriter.WriteHeader(status)
}

func (s *stranger) Unwrap() http.ResponseWriter { return s.ResponseWriter }
