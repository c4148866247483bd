package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// pollFor is how long one request waits for a message. It is shorter than drainFor: at the end of Run the request in
	// flight is answered, so that no message goes to a process that has ended.
	pollFor = 1500 * time.Millisecond
	// openFor bounds one request that makes what the name needs: some requests to JetStream for each lane. It is sent again for
	// startFor, because the next one finds what the one before has made. JetStream may not answer one while a leader is elected.
	openFor  = 5 * time.Second
	startFor = 5 * time.Minute
	// skipPoll is how often the skip list is requested while a lane waits.
	skipPoll = 3 * time.Second
)

// ErrDenied ends Run when the key does not permit it: it is of another role, or for another name.
var ErrDenied = errors.New("the key does not permit it")

// errUnavailable: the service could not do it now.
var errUnavailable = errors.New("the service could not answer")

// errMissing: the service found no consumer.
var errMissing = errors.New("the consumer does not exist")

// keyed is a backend with a key: it requests from the service (Proxy) what direct does. It has no state that a crash loses.
type keyed struct {
	nc   *nats.Conn
	opts *Options
}

// request sends a request until ctx ends, or for wait, and returns the answer. data is the value in it; a message has none.
func (k *keyed) request(ctx context.Context, endpoint string, r request, wait time.Duration) (m *nats.Msg, data json.RawMessage, err error) {
	r.Name = k.opts.Name
	body, err := json.Marshal(r)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	out := nats.NewMsg("scrip." + endpoint)
	out.Data = body
	out.Header.Set("Scrip-Timeout", min(wait, time.Minute).String())
	m, err = k.nc.RequestMsgWithContext(ctx, out)
	if errors.Is(err, nats.ErrNoResponders) {
		err = fmt.Errorf("no server with the role api serves senders: %w", err)
	}
	if err != nil {
		return nil, nil, err
	}
	var answer struct {
		Status  string          `json:"status"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	}
	code := m.Header.Get("Nats-Service-Error-Code")
	if code == "" && m.Header.Get(headerPosition) != "" {
		return m, nil, nil
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return nil, nil, fmt.Errorf("an answer that is not understood: %w", err)
	}
	switch {
	case code == "403":
		return nil, nil, fmt.Errorf("%w: %s", ErrDenied, answer.Message)
	case code != "":
		return nil, nil, fmt.Errorf("%w: %s", errUnavailable, answer.Message)
	case answer.Status != "":
		return nil, nil, errors.New(answer.Message)
	}
	return m, answer.Data, nil
}

// store is a request of EndpointStore; the value in the answer is read into v, unless that is nil.
func (k *keyed) store(ctx context.Context, r request, v any) error {
	_, data, err := k.request(ctx, EndpointStore, r, requestTimeout)
	if err == nil && v != nil {
		err = json.Unmarshal(data, v)
	}
	return err
}

// open is sent again for startFor, because the next one finds what the one before has made.
func (k *keyed) open(ctx context.Context) (o opened, err error) {
	ctx, cancel := context.WithTimeout(ctx, startFor)
	defer cancel()
	since := "now"
	switch {
	case k.opts.Since.all:
		since = "start"
	case !k.opts.Since.at.IsZero():
		since = k.opts.Since.at.UTC().Format(time.RFC3339Nano)
	}
	for {
		_, data, err := k.request(ctx, EndpointOpen, request{Since: since, AckWait: wire.Period(k.opts.AckWait), Unacked: k.opts.Unacked}, openFor)
		if err == nil {
			err = json.Unmarshal(data, &o)
		}
		if err == nil && (len(o.Lanes) == 0 || len(o.Lanes) > topology.MaxLanes+1 || o.AckWait <= 0) {
			err = errors.New("the answer names no lanes")
		}
		again := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errUnavailable) || errors.Is(err, nats.ErrNoResponders)
		if !again || ctx.Err() != nil {
			return o, err
		}
		k.opts.Logger.InfoContext(ctx, "the consumers of the push sender are not made yet; requesting them again", "name", k.opts.Name, "err", err)
		_ = natsx.Pause(ctx, time.Second)
	}
}

func (k *keyed) pull(ctx context.Context, at place, take func(delivery) error) error {
	patience, cancel := longer(ctx, drainFor)
	defer cancel()
	what := request{Lane: &at.lane, Wait: wire.Period(pollFor)}
	if at.waits {
		what.Lane, what.Class = nil, at.class.String()
	}
	for ctx.Err() == nil {
		m, data, err := k.request(patience, EndpointNext, what, pollFor+waitSlack+requestTimeout)
		switch {
		case errors.Is(err, ErrDenied):
			return &fatalError{err}
		case err != nil:
			return err
		case string(data) == `"`+missing+`"`:
			return errMissing
		case data != nil:
			continue
		}
		got, err := delivered(m)
		if err != nil {
			return err
		}
		if err := take(got); err != nil {
			return &fatalError{err}
		}
	}
	return ctx.Err()
}

// mend pauses: after an answer the next request would fail at once, too.
func (k *keyed) mend(ctx context.Context, _ place, cause error) error {
	if natsx.Pause(ctx, missingPause) != nil || !errors.Is(cause, errMissing) {
		return nil
	}
	_, err := k.open(ctx)
	return err
}

// delivered reads an answer that is a message.
func delivered(m *nats.Msg) (got delivery, err error) {
	var stored int64
	got.token = m.Header.Get(headerToken)
	got.Subject, got.Header, got.Data = m.Header.Get(headerSubject), maps.Clone(m.Header), m.Data
	if _, err := fmt.Sscanf(m.Header.Get(headerPosition), "%d %d %d", &got.Sequence, &stored, &got.deliveries); err != nil {
		return got, fmt.Errorf("an answer that is not understood: %s: %w", headerPosition, err)
	}
	got.Time = time.Unix(0, stored).UTC()
	for _, name := range []string{headerSubject, headerToken, headerPosition} {
		delete(got.Header, name)
	}
	return got, nil
}

func (k *keyed) answer(token, as string, delay time.Duration) error {
	body, err := json.Marshal(request{Name: k.opts.Name, Token: token, As: as, Delay: wire.Period(delay)})
	if err != nil {
		return err
	}
	return k.nc.Publish("scrip."+EndpointAck, body)
}

func (k *keyed) confirm(ctx context.Context, token string) error {
	_, _, err := k.request(ctx, EndpointAck, request{Token: token, As: asAck}, requestTimeout)
	return err
}

// read returns eventlog.ErrLostTail if the log does not have the message any more.
func (k *keyed) read(ctx context.Context, lane int, sequence uint64) (eventlog.Raw, error) {
	m, data, err := k.request(ctx, EndpointStore, request{Do: doRead, Message: &messageID{Lane: lane, Sequence: sequence}}, requestTimeout)
	if err == nil && data != nil {
		err = fmt.Errorf("message %d of lane %d: %w", sequence, lane, eventlog.ErrLostTail)
	}
	if err != nil {
		return eventlog.Raw{}, err
	}
	got, err := delivered(m)
	return got.Raw, err
}

func (k *keyed) awaitSkip(ctx context.Context, lane int, cause error) (eventlog.Skips, error) {
	var stop *eventlog.StopError
	errors.As(cause, &stop)
	for {
		if err := natsx.Pause(ctx, skipPoll); err != nil {
			return nil, err
		}
		o, err := k.open(ctx)
		for _, of := range o.Lanes {
			if err == nil && of.Lane == lane && (stop == nil || slices.Contains(of.Skips[stop.Sequence], stop.Hash)) {
				return of.Skips, nil
			}
		}
	}
}

func (k *keyed) put(ctx context.Context, c class, id messageID, e entry) error {
	return k.store(ctx, request{Do: doWait, Message: &id, Class: c.String(), Entry: &e}, nil)
}

// save sends no position alone: it follows with the next count.
func (k *keyed) save(ctx context.Context, n counts) error {
	if n.none() {
		return nil
	}
	return k.store(ctx, request{Do: doCount, Counts: &n}, nil)
}

func (k *keyed) optedOut(ctx context.Context, customers []string) (map[string]bool, error) {
	var list []string
	err := k.store(ctx, request{Do: doOptOuts, Keys: customers}, &list)
	out := make(map[string]bool, len(list))
	for _, c := range list {
		out[c] = true
	}
	return out, err
}

func (k *keyed) close() {}

func (k *keyed) letters(ctx context.Context) iter.Seq2[DeadLetter, error] {
	return eachLetter(func(after uint64) (s storedLetter, err error) {
		err = k.store(ctx, request{Do: doNext, After: after}, &s)
		return s, err
	})
}

func (k *keyed) letter(ctx context.Context, message messageID) (l DeadLetter, ok bool, err error) {
	var found *DeadLetter
	if err = k.store(ctx, request{Do: doLetter, Message: &message}, &found); err != nil || found == nil {
		return l, false, err
	}
	found.id = message
	return *found, true, nil
}

func (k *keyed) add(ctx context.Context, l *DeadLetter) error {
	return untilStored(ctx, func(ctx context.Context) error {
		return k.store(ctx, request{Do: doAdd, Message: &l.id, Letter: l}, &l.ID)
	})
}

func (k *keyed) remove(ctx context.Context, message messageID, keys []string) error {
	return k.store(ctx, request{Do: doRemove, Message: &message, Keys: keys}, nil)
}

func (k *keyed) settle(ctx context.Context, l DeadLetter, left []Reminder, cause error) error {
	if l.Reminders = left; cause != nil {
		l.Error = reasonOf(cause)
	}
	return k.store(context.WithoutCancel(ctx), request{Do: doSettle, Message: &l.id, Letter: &l}, nil)
}
