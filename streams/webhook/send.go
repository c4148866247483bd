package webhook

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/wall"
	"github.com/seed-4a2410e3/scrip/streams/webhook/receiver"
	"github.com/seed-4a2410e3/scrip/streams/webhook/signature"
)

const (
	requestTimeout = 15 * time.Second
	// answerMost is how many bytes of a response are read.
	answerMost = 64 << 10
	// failingAfter is how long an endpoint must fail every request before that is recorded, disableAfter before it is disabled.
	failingAfter = time.Hour
	disableAfter = 5 * 24 * time.Hour
)

// sender makes the requests of one endpoint.
type sender struct {
	e       Endpoint
	secrets []signature.Secret // newest first
	clock   wall.Clock
	client  *http.Client
	limit   *rate.Limiter
	slots   chan struct{}
	tries   *attempts                                 // nil = they are not kept
	record  func(ctx context.Context, c Change) error // stores a change by this server

	mu       sync.Mutex // guards the fields below
	since    time.Time  // every request has failed since; zero = the last one did not
	recorded bool       // it is stored that it fails
	disabled bool       // that is stored
	storing  bool       // a change is being stored
}

// transport connects to addresses that the guard allows for the scheme of a URL.
func transport(g *Guard, target string, roots *x509.CertPool, resolver *net.Resolver) *http.Transport {
	u, err := url.Parse(target)
	plain := err != nil || u.Scheme != "https"
	t := receiver.Transport(&net.Dialer{Timeout: 10 * time.Second, Control: g.Control(plain), Resolver: resolver}, 4)
	t.TLSClientConfig.RootCAs, t.ResponseHeaderTimeout = roots, requestTimeout
	return t
}

func newSender(e Endpoint, secrets []signature.Secret, t http.RoundTripper, clock wall.Clock, record func(context.Context, Change) error) *sender {
	client := receiver.Client(t)
	client.Timeout = requestTimeout
	return &sender{
		e: e, secrets: secrets, clock: clock, record: record, since: e.FailingSince, recorded: !e.FailingSince.IsZero(), client: client,
		limit: rate.NewLimiter(rate.Limit(e.Rate), max(1, e.Rate/10)), slots: make(chan struct{}, e.Concurrency),
	}
}

// push delivers lines. Those of requests that were not answered with 2xx are left.
func (s *sender) push(ctx context.Context, batch []push.Line) error {
	all, err := requests(batch, s.e.Batch == 1, s.e.Codes)
	if err != nil {
		return err
	}
	var left []int
	var last error
	for i := range all {
		r := &all[i]
		failed, err := s.post(ctx, r)
		if err == nil {
			continue
		}
		last = err
		for n := range r.lines {
			if failed == nil || slices.Contains(failed, n) {
				left = append(left, r.first+n)
			}
		}
		var away *push.Away
		if errors.As(err, &away) {
			if r.first == 0 {
				return err
			}
			for n := r.first + r.lines; n < len(batch); n++ {
				left = append(left, n)
			}
			break
		}
	}
	if last == nil || len(left) == len(batch) {
		return last
	}
	return &push.Partial{Failed: left, Err: last}
}

// post makes one request, within rate and concurrency. After an error failed are the indexes of its lines that were not delivered,
// nil = all.
func (s *sender) post(ctx context.Context, r *request) (failed []int, err error) {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := s.limit.Wait(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	failed, err = s.try(ctx, r)
	one := Attempt{At: began.UTC().Truncate(time.Millisecond), ID: r.id, Events: r.lines, Millis: time.Since(began).Milliseconds(), Status: r.status}
	if err != nil {
		one.Error = err.Error()
	}
	s.tries.add(one)
	switch {
	case ctx.Err() != nil:
	case failed != nil && len(failed) < r.lines:
		s.note(ctx, nil) // it took some: it works
	default:
		s.note(ctx, err)
	}
	return failed, err
}

// signing returns the secrets that sign now.
func (s *sender) signing() []signature.Secret {
	if len(s.secrets) > 1 && !s.clock.Now().Before(s.e.rotated) {
		return s.secrets[:1]
	}
	return s.secrets
}

func (s *sender) try(ctx context.Context, r *request) (failed []int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.e.URL, bytes.NewReader(r.body))
	if err != nil {
		return nil, errors.New("the URL is not valid")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "scrip-webhook/1")
	signature.Set(req.Header, r.id, s.clock.Now(), r.body, s.signing()...)
	resp, err := s.client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the URL, which may hold a secret
		}
		slow := ctx.Err() != nil || os.IsTimeout(err)
		if err = fmt.Errorf("POST to %s: %w", req.URL.Host, err); slow { // which may be because of these events
			return nil, err
		}
		return nil, &push.Away{Err: err}
	}
	defer resp.Body.Close()
	r.status = resp.StatusCode
	answer, readErr := io.ReadAll(io.LimitReader(resp.Body, answerMost))
	err = fmt.Errorf("the endpoint responded %s", resp.Status)
	switch code := resp.StatusCode; {
	case code == http.StatusMultiStatus && s.e.Batch > 1:
		return partly(answer, readErr, r.lines)
	case code/100 == 2:
		return nil, nil // the body does not matter, nor whether it is complete
	case code == http.StatusGone:
		return nil, &push.Away{Err: errGone, RetryAfter: 24 * time.Hour}
	case signature.Away(code):
		return nil, &push.Away{Err: err, RetryAfter: signature.RetryAfter(resp.Header, s.clock.Now())}
	case s.e.GiveUp4xx && code/100 == 4 && code != http.StatusConflict:
		return nil, &push.Refused{Err: err, Final: true}
	case code == http.StatusBadRequest, code == http.StatusRequestEntityTooLarge, code == http.StatusUnprocessableEntity:
		return nil, &push.Refused{Err: err}
	}
	return nil, err
}

var errGone = errors.New("the endpoint responded 410 Gone")

// partly is the result of a 207, which lists the events that were not taken.
func partly(answer []byte, readErr error, lines int) ([]int, error) {
	failed, _, err := signature.Failed(answer, readErr, lines)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the endpoint: %w", err)
	case len(failed) == 0:
		return nil, nil
	}
	return failed, &push.Refused{Err: errors.New("the endpoint did not take all events of a request")}
}

// note stores that the endpoint fails, works again, or is disabled. A change that was not stored, also because of a crash, is
// stored by a later request.
func (s *sender) note(ctx context.Context, err error) {
	c := s.health(err)
	if c.What == "" {
		return
	}
	failed := s.record(ctx, c)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.storing = false
	if failed != nil {
		return
	}
	switch c.What {
	case Works:
		s.recorded = false
	case Failing:
		s.recorded = true
	case Disable:
		s.disabled = true
	}
}

// health takes in the result of a request, and returns the change that follows and is not stored, if there is one. Until that is
// stored, or not, there is no other.
func (s *sender) health(err error) (c Change) {
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.since = time.Time{}
	} else if s.since.IsZero() {
		s.since = now
	}
	since := now.Sub(s.since)
	switch {
	case s.storing || s.disabled:
	case err == nil && s.recorded:
		c = Change{What: Works}
	case err == nil:
	case errors.Is(err, errGone):
		c = Change{What: Disable, Reason: errGone.Error()}
	case since >= disableAfter:
		c = Change{What: Disable, Reason: fmt.Sprintf("every request has failed since %s, the last one: %.200s", s.since.UTC().Format(time.RFC3339), err)}
	case since >= failingAfter && !s.recorded:
		c = Change{What: Failing, From: s.since}
	}
	s.storing = s.storing || c.What != ""
	return c
}

// test makes one request that is no event's.
func (s *sender) test(ctx context.Context, n uint64) error {
	ctx, done := context.WithTimeout(ctx, requestTimeout)
	defer done()
	data, _ := json.Marshal(map[string]string{"webhook": s.e.ID}) // never fails
	body, _ := json.Marshal(event{Type: TypeTest, Timestamp: s.clock.Now().UTC(), Data: data})
	_, err := s.try(ctx, &request{id: fmt.Sprintf("test_%s_%d", s.e.ID, n), body: body, lines: 1})
	return err
}
