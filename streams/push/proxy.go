package push

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/optout"
	"github.com/seed-4a2410e3/scrip/streams/priority"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// waitMost bounds how long EndpointNext waits for a message.
	waitMost = 10 * time.Second
	// waitSlack is how much longer the answer of JetStream may take. A pull request that is over delivers nothing more, and its
	// status may be late.
	waitSlack = 300 * time.Millisecond
	// bodyMost bounds a request: a dead letter of MaxBatch reminders is a quarter of it.
	bodyMost = 1 << 20
)

// InvalidRequestError: a request of a sender with a key was not carried out, and a retry does not help.
type InvalidRequestError struct{ Err error }

func (e *InvalidRequestError) Error() string { return e.Err.Error() }

func (e *InvalidRequestError) Unwrap() error { return e.Err }

func invalid(format string, args ...any) error {
	return &InvalidRequestError{fmt.Errorf(format, args...)}
}

// Answer is what an endpoint answers: a message of the log with its headers, or, without Header, a JSON value.
type Answer struct {
	Header nats.Header
	Data   []byte
}

// Proxy does for senders with a key what senders with credentials of servers do themselves, for one name in each request. It
// is the part of the service that makes consumers, streams and the bucket; a sender with a key never may.
//
//	sender.open  consumers of the name on SCRIP_RMD_<lane>, SCRIP_PUSH_OUT and SCRIP_PUSH_WAIT, its records in SCRIP_PUSH, the streams
//	sender.next  one message from one of these consumers
//	sender.ack   of a message from one of these consumers: the token names stream and consumer, and is checked
//	sender.store its entries, dead letters and counts; a message of these streams
//
// It has no state but a copy of the list of those who want no reminders: any server answers any request. After a crash between a message and its answer NATS delivers the message
// again after AckWait.
type Proxy struct {
	js   jetstream.JetStream
	log  *slog.Logger
	list *optout.List
}

// NewProxy returns a Proxy with the credentials of js. It sends no request.
func NewProxy(js jetstream.JetStream, logger *slog.Logger) *Proxy {
	return &Proxy{js: js, log: logger, list: optout.NewList(js)}
}

// Close ends what the Proxy reads.
func (x *Proxy) Close() { x.list.Close() }

// Do carries a request out. may checks the name that it is for. Errors: *InvalidRequestError, the error of may; after any
// other one the request may be sent again.
func (x *Proxy) Do(ctx context.Context, endpoint string, data []byte, may func(name string) error) (Answer, error) {
	var r request
	if len(data) > bodyMost {
		return Answer{}, invalid("the request has %d bytes, at most %d are allowed", len(data), bodyMost)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return Answer{}, invalid("the request is not understood: %w", err)
	}
	if err := checkName(r.Name); err != nil {
		return Answer{}, invalid("name: %w", err)
	}
	if strings.HasPrefix(r.Name, EventsPrefix) {
		return Answer{}, invalid("name: names with %s are of webhooks; choose another", EventsPrefix)
	}
	if err := may(r.Name); err != nil {
		return Answer{}, err
	}
	on, err := x.on(&r)
	if err != nil {
		return Answer{}, err
	}
	switch endpoint {
	case EndpointOpen:
		return value(on.open(ctx))
	case EndpointNext:
		return x.next(ctx, &r)
	case EndpointAck:
		return ack(ctx, on, &r)
	case EndpointStore:
		return store(ctx, on, &r)
	}
	return Answer{}, invalid("there is no endpoint %s", endpoint)
}

func value[V any](v V, err error) (Answer, error) {
	if err != nil {
		return Answer{}, err
	}
	data, err := json.Marshal(v)
	return Answer{Data: data}, err
}

// on is the backend of the name.
func (x *Proxy) on(r *request) (*direct, error) {
	opts := Options{Name: r.Name, AckWait: time.Duration(r.AckWait), Unacked: r.Unacked, Logger: x.log}
	switch r.Since {
	case "", "now":
	case "start":
		opts.Since = FromStart()
	default:
		t, err := time.Parse(time.RFC3339, r.Since)
		if err != nil {
			return nil, invalid("since is %q, expected now, start, or an RFC 3339 time", r.Since)
		}
		opts.Since = From(t)
	}
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, &InvalidRequestError{err}
	}
	return &direct{js: x.js, opts: &opts, source: reminders(), list: x.list}, nil
}

// none is the answer of EndpointNext where nothing came, missing where the consumer does not exist.
const (
	none    = "none"
	missing = "missing"
)

func (x *Proxy) next(ctx context.Context, r *request) (Answer, error) {
	var stream, name string
	switch {
	case r.Lane != nil && r.Class == "" && validLane(*r.Lane):
		stream, name = fired(nil, *r.Lane).Name(), r.Name
	case r.Lane == nil && r.Class != "":
		c, err := classOf(r)
		if err != nil {
			return Answer{}, err
		}
		stream, name = WaitStream, waitConsumer(r.Name, c)
	default:
		return Answer{}, invalid("give a lane or a class")
	}
	if r.Wait <= 0 || r.Wait > wire.Period(waitMost) {
		return Answer{}, invalid("wait is %s, expected more than 0s and up to %s", r.Wait, wire.Period(waitMost))
	}
	m, err := x.pullOne(ctx, stream, name, time.Duration(r.Wait))
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return value(missing, nil)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return value(none, nil)
	case err != nil:
		return Answer{}, err
	case m.Header.Get("Status") != "": // 404, 408, or 409 with a reason that passes
		return value(none, nil)
	}
	meta, err := m.Metadata()
	if err != nil {
		return Answer{}, err
	}
	a := passOn(m.Subject, m.Header, m.Data, meta.Sequence.Stream, meta.Timestamp, meta.NumDelivered)
	a.Header.Set(headerToken, m.Reply)
	return a, nil
}

// pullOne requests one message. It has a subscription of its own: JetStream delivers under the message's subject, by which
// nats.go does not find a request.
func (x *Proxy) pullOne(ctx context.Context, stream, consumer string, wait time.Duration) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+waitSlack)
	defer cancel()
	nc := x.js.Conn()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection may be closed, and the subscription with it
	body := fmt.Appendf(nil, `{"batch":1,"expires":%d}`, wait.Nanoseconds())
	if err := nc.PublishRequest(natsx.API(x.js, "CONSUMER.MSG.NEXT."+stream+"."+consumer), inbox, body); err != nil {
		return nil, err
	}
	return sub.NextMsgWithContext(ctx)
}

// passOn makes an answer of a message of the log.
func passOn(subject string, header nats.Header, data []byte, sequence uint64, stored time.Time, deliveries uint64) Answer {
	a := Answer{Header: nats.Header{}, Data: data}
	for name, values := range header {
		a.Header[name] = values
	}
	a.Header.Set(headerSubject, subject)
	a.Header.Set(headerPosition, fmt.Sprintf("%d %d %d", sequence, stored.UnixNano(), deliveries))
	return a
}

func validLane(lane int) bool { return lane >= 0 && lane <= OutLane }

func classOf(r *request) (class, error) {
	c, ok := priority.Parse(r.Class)
	if !ok {
		return 0, invalid("class: %q is no class of waiting messages", r.Class)
	}
	return c, nil
}

// ack answers a message. The token is a subject of JetStream that names its stream and consumer.
func ack(ctx context.Context, on backend, r *request) (Answer, error) {
	switch {
	case !ownToken(r.Name, r.Token):
		return Answer{}, invalid("token: it is not of a message for %s", r.Name)
	case r.As == asAck:
		return value(struct{}{}, on.confirm(ctx, r.Token))
	case r.As == asNak, r.As == asProgress:
		return value(struct{}{}, on.answer(r.Token, r.As, time.Duration(r.Delay)))
	}
	return Answer{}, invalid("as is %q, expected %s, %s or %s", r.As, asAck, asNak, asProgress)
}

// ownToken reports whether a token is of a consumer of the name. It is one of two forms:
//
//	$JS.ACK.<stream>.<consumer>.<5 numbers>
//	$JS.ACK.<domain>.<account>.<stream>.<consumer>.<5 numbers>[.<more>]
func ownToken(name, token string) bool {
	parts := strings.Split(token, ".")
	at := 2
	switch n := len(parts); {
	case n == 9:
	case n == 11, n == 12:
		at = 4
	default:
		return false
	}
	if parts[0] != "$JS" || parts[1] != "ACK" || slices.Contains(parts, "") || strings.ContainsAny(token, "*> \t\r\n") {
		return false
	}
	stream, consumer := parts[at], parts[at+1]
	if stream == WaitStream {
		for c := range classes {
			if consumer == waitConsumer(name, c) {
				return true
			}
		}
		return false
	}
	return (strings.HasPrefix(stream, topology.RmdStreamPrefix) || stream == topology.PushOutStream) && consumer == name
}

func store(ctx context.Context, on *direct, r *request) (Answer, error) {
	switch r.Do {
	case doCount:
		return count(ctx, on, r)
	case doNext:
		return value(on.nextLetter(ctx, r.After))
	case doOptOuts:
		if len(r.Keys) > MaxBatch {
			return Answer{}, invalid("keys: there are %d, at most %d are allowed", len(r.Keys), MaxBatch)
		}
		out, err := on.optedOut(ctx, r.Keys)
		return value(slices.AppendSeq([]string{}, maps.Keys(out)), err)
	}
	at := r.Message
	if at == nil || !validLane(at.Lane) || at.Sequence == 0 || at.Sequence > math.MaxInt64 || at.Stored < 0 || at.Hop < 0 || at.Line < 0 {
		return Answer{}, invalid("message: give its lane and sequence")
	}
	switch r.Do {
	case doRead:
		raw, err := on.read(ctx, at.Lane, at.Sequence)
		switch {
		case errors.Is(err, eventlog.ErrLostTail), errors.Is(err, eventlog.ErrTrimmed), errors.Is(err, eventlog.ErrHole):
			return value(none, nil)
		case err != nil:
			return Answer{}, err
		}
		return passOn(raw.Subject, raw.Header, raw.Data, raw.Sequence, raw.Time, 1), nil
	case doWait:
		c, err := classOf(r)
		if err != nil {
			return Answer{}, err
		}
		if r.Entry == nil || at.Hop == 0 {
			return Answer{}, invalid("entry: it is missing, or hop of its message is 0")
		}
		return value(struct{}{}, on.put(ctx, c, *at, *r.Entry))
	case doLetter:
		l, ok, err := on.letter(ctx, *at)
		if err == nil && !ok {
			return value[any](nil, nil)
		}
		return value(&l, err)
	case doRemove:
		return value(struct{}{}, on.remove(ctx, *at, r.Keys))
	case doAdd, doSettle:
		return letter(ctx, on, r)
	}
	return Answer{}, invalid("do is %q, which this server does not know", r.Do)
}

func letter(ctx context.Context, on *direct, r *request) (Answer, error) {
	id := *r.Message
	if r.Letter == nil || len(r.Letter.Reminders) > lettersMost || len(r.Letter.Reminders) == 0 && r.Do == doAdd {
		return Answer{}, invalid("letter: it must have 1 to %d reminders", lettersMost)
	}
	reason := errors.New(r.Letter.Error)
	if r.Do == doAdd {
		l := DeadLetter{
			Name: r.Name, Lane: id.Lane, Stream: fired(nil, id.Lane).Name(), Sequence: id.Sequence, id: id,
			Tries: max(0, r.Letter.Tries), Error: reasonOf(reason), Reminders: r.Letter.Reminders,
		}
		err := on.add(ctx, &l)
		return value(l.ID, err)
	}
	l, ok, err := on.letter(ctx, id)
	if err == nil && ok && l.ID == r.Letter.ID { // else another retry handled it, too
		err = on.settle(ctx, l, r.Letter.Reminders, reason)
	}
	return value(struct{}{}, err)
}

func count(ctx context.Context, on *direct, r *request) (Answer, error) {
	if r.Counts == nil || !validLane(r.Counts.Lane) {
		return Answer{}, invalid("counts: give the lane")
	}
	if err := errors.Join(on.find(ctx), on.openBucket(ctx)); err != nil {
		return Answer{}, err
	}
	if lanes := on.log.Lanes; r.Counts.Lane >= lanes && r.Counts.Lane != OutLane {
		return Answer{}, invalid("counts: the log has lanes 0 to %d", lanes-1)
	}
	return value(struct{}{}, on.save(ctx, *r.Counts))
}
