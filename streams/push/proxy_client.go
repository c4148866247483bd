package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

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
	// lettersFor bounds one request for dead letters, which is not sent again.
	lettersFor = 30 * time.Second
	// skipPoll is how often the skip list is requested while a lane waits.
	skipPoll = 3 * time.Second
)

// ErrDenied ends Run when the key does not permit it: it is of another role, or for another name.
var ErrDenied = errors.New("the key does not permit it")

// errUnavailable: the service could not do it now.
var errUnavailable = errors.New("the service could not answer")

// errMissing: the service found no consumer.
var errMissing = errors.New("the consumer does not exist")

// NewKeyed makes a Pusher of fired reminders for a sender that has a key of role sender. The connection was made with
// [dial.Keyed]. It uses the endpoints of the service, see Proxy, and may do what is opts.Name's alone. Errors are those of New.
func NewKeyed(nc *nats.Conn, opts Options) (*Pusher, error) {
	p, err := newPusher(nil, opts, reminders())
	if err == nil {
		p.proxy = &proxyClient{nc: nc, name: opts.Name}
		p.entries, p.dead = p.proxy, p.proxy
	}
	return p, err
}

// proxyClient makes requests to the service (Proxy) in place of JetStream. It has the consumers, entries and dead letters of one
// name. It has no state that a crash loses.
type proxyClient struct {
	nc   *nats.Conn
	name string
	wait atomic.Int64 // AckWait, ns
}

// request sends a request until ctx ends, or for wait, and returns the answer. data is the value in it; a message has none.
func (pc *proxyClient) request(ctx context.Context, endpoint string, r request, wait time.Duration) (m *nats.Msg, data json.RawMessage, err error) {
	r.Name = pc.name
	body, err := json.Marshal(r)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	out := nats.NewMsg("scrip." + endpoint)
	out.Data = body
	out.Header.Set("Scrip-Timeout", min(wait, time.Minute).String())
	m, err = pc.nc.RequestMsgWithContext(ctx, out)
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

// send sends a request and does not wait for an answer.
func (pc *proxyClient) send(endpoint string, r request) error {
	r.Name = pc.name
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return pc.nc.Publish("scrip."+endpoint, body)
}

// open makes what the name needs.
func (pc *proxyClient) open(ctx context.Context, p *Pusher) (o opened, err error) {
	since := "now"
	switch {
	case p.opts.Since.all:
		since = "start"
	case !p.opts.Since.at.IsZero():
		since = p.opts.Since.at.UTC().Format(time.RFC3339Nano)
	}
	_, data, err := pc.request(ctx, EndpointOpen, request{Since: since, AckWait: p.opts.AckWait, Unacked: p.opts.Unacked}, openFor)
	if err == nil {
		err = json.Unmarshal(data, &o)
	}
	if err == nil && (len(o.Lanes) == 0 || len(o.Lanes) > topology.MaxLanes || o.AckWait <= 0) {
		err = errors.New("the answer names no lanes")
	}
	pc.wait.Store(int64(o.AckWait))
	return o, err
}

// prepare is Pusher.prepare.
func (pc *proxyClient) prepare(ctx context.Context, p *Pusher) (lanes, waiting []puller, err error) {
	start, cancel := context.WithTimeout(ctx, startFor)
	defer cancel()
	o, err := pc.open(start, p)
	for errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errUnavailable) || errors.Is(err, nats.ErrNoResponders) {
		p.opts.Logger.InfoContext(ctx, "the consumers of the push sender are not made yet; requesting them again", "name", pc.name, "err", err)
		if natsx.Pause(start, time.Second) != nil {
			break
		}
		o, err = pc.open(start, p)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("push: %w", err)
	}
	if o.Format > topology.Format {
		return nil, nil, fmt.Errorf("push: %w: log %s has format %d, this program reads up to %d; use a newer pushsender", eventlog.ErrNewerFormat, o.Log, o.Format, topology.Format)
	}
	p.log = topology.Log{UUID: o.Log, Lanes: len(o.Lanes), Format: o.Format}
	if p.opts.SealKey != "" {
		if p.log, err = p.log.WithSealKey(p.opts.SealKey); err != nil {
			return nil, nil, fmt.Errorf("push: SealKey: %w", err)
		}
	}
	n := len(o.Lanes)
	p.judges, p.counts, p.begun = make([]laneJudge, n), make([]laneCounts, n), make([]atomic.Int64, n)
	for lane, l := range o.Lanes {
		p.judges[lane].judge = p.source.stream(nil, lane).In(p.log).JudgeWith(l.Skips)
		p.begun[lane].Store(l.Begun.UnixNano())
		lanes = append(lanes, pc.lanePuller(lane))
	}
	for c := range classes {
		waiting = append(waiting, pc.classPuller(c))
	}
	p.setProgressEvery(ctx, lanes, waiting)
	return lanes, waiting, nil
}

// reopen makes a lost consumer again.
func (pc *proxyClient) reopen(ctx context.Context, p *Pusher, f puller) (puller, error) {
	_, err := pc.open(ctx, p)
	return f, err
}

// awaitSkip is eventlog.Stream.AwaitSkip.
func (pc *proxyClient) awaitSkip(ctx context.Context, p *Pusher, lane int, cause error) (eventlog.Skips, error) {
	var stop *eventlog.StopError
	errors.As(cause, &stop)
	for {
		if err := natsx.Pause(ctx, skipPoll); err != nil {
			return nil, err
		}
		o, err := pc.open(ctx, p)
		if err == nil && lane < len(o.Lanes) && (stop == nil || slices.Contains(o.Lanes[lane].Skips[stop.Sequence], stop.Hash)) {
			return o.Lanes[lane].Skips, nil
		}
	}
}

// read reads a message of the log. The error is eventlog.ErrLostTail if the log does not have it any more.
func (pc *proxyClient) read(ctx context.Context, lane int, sequence uint64) (eventlog.Raw, error) {
	m, data, err := pc.request(ctx, EndpointStore, request{Do: doRead, Message: &messageID{Lane: lane, Sequence: sequence}}, requestTimeout)
	if err != nil {
		return eventlog.Raw{}, err
	}
	if data != nil {
		return eventlog.Raw{}, fmt.Errorf("message %d of lane %d: %w", sequence, lane, eventlog.ErrLostTail)
	}
	got, err := pc.delivered(m)
	if err != nil {
		return eventlog.Raw{}, err
	}
	return eventlog.Raw{Subject: got.subject, Header: got.header, Data: got.data, Sequence: got.meta.Sequence.Stream, Time: got.meta.Timestamp.UTC()}, nil
}

// put is waitStream.put.
func (pc *proxyClient) put(ctx context.Context, c class, id messageID, e entry) error {
	_, _, err := pc.request(ctx, EndpointStore, request{Do: doWait, Message: &id, Class: c.String(), Entry: &e}, requestTimeout)
	return err
}

// get is deadStream.get.
func (pc *proxyClient) get(ctx context.Context, _ string, message messageID) (l DeadLetter, ok bool, err error) {
	_, data, err := pc.request(ctx, EndpointStore, request{Do: doLetter, Message: &message}, requestTimeout)
	if err != nil || strings.TrimSpace(string(data)) == "null" || len(data) == 0 {
		return l, false, err
	}
	err = json.Unmarshal(data, &l)
	l.id = message
	return l, err == nil, err
}

// add is deadStream.add: it is repeated until the letter is stored or ctx ends.
func (pc *proxyClient) add(ctx context.Context, l *DeadLetter) error {
	for pause := storePause; ; pause = min(2*pause, storePauseMost) {
		_, data, err := pc.request(ctx, EndpointStore, request{Do: doAdd, Message: &l.id, Letter: l}, requestTimeout)
		if err == nil {
			return json.Unmarshal(data, &l.ID)
		}
		if errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, ErrDenied) || natsx.Pause(ctx, pause) != nil {
			return err
		}
	}
}

// remove is deadStream.remove.
func (pc *proxyClient) remove(ctx context.Context, _ string, message messageID, gone []item) error {
	keys := make([]string, len(gone))
	for i := range gone {
		keys[i] = gone[i].Key
	}
	_, _, err := pc.request(ctx, EndpointStore, request{Do: doRemove, Message: &message, Keys: keys}, requestTimeout)
	return err
}

// LettersKeyed is Letters for a sender that has a key, see NewKeyed.
func LettersKeyed(ctx context.Context, nc *nats.Conn, name string) iter.Seq2[DeadLetter, error] {
	return (&proxyClient{nc: nc, name: name}).letters(ctx)
}

// letters lists the dead letters of the name, in the order in which they were written. Those written meanwhile are not in it.
func (pc *proxyClient) letters(ctx context.Context) iter.Seq2[DeadLetter, error] {
	return func(yield func(DeadLetter, error) bool) {
		seen := map[string]bool{} // a retry writes a letter again, with a higher id
		for after := uint64(0); ; {
			var next *storedLetter
			_, data, err := pc.request(ctx, EndpointStore, request{Do: doNext, After: after}, lettersFor)
			if err == nil {
				err = json.Unmarshal(data, &next)
			}
			if err != nil {
				yield(DeadLetter{}, fmt.Errorf("push: listing dead letters: %w", err))
				return
			}
			if next == nil || next.Message == nil || next.Letter.ID <= after {
				return
			}
			l := next.Letter
			l.id, after = *next.Message, l.ID
			if seen[l.Message()] {
				continue
			}
			seen[l.Message()] = true
			if !yield(l, nil) {
				return
			}
		}
	}
}

// settle is deadStream.settle.
func (pc *proxyClient) settle(ctx context.Context, l DeadLetter, left []Reminder, cause error) error {
	if l.Reminders = left; cause != nil {
		l.Error = oneLine(cause)
	}
	_, _, err := pc.request(context.WithoutCancel(ctx), EndpointStore, request{Do: doSettle, Message: &l.id, Letter: &l}, requestTimeout)
	return err
}

// save records what a lane counted since the last time. Positions alone are not recorded: they follow with the next count.
func (pc *proxyClient) save(ctx context.Context, lane int, c *laneCounts) error {
	n := counts{Lane: lane, Delivered: c.delivered.Swap(0), Dead: c.dead.Swap(0), Failed: c.failed.Swap(0)}
	if n.Delivered+n.Dead+n.Failed == 0 {
		return nil
	}
	_, _, err := pc.request(ctx, EndpointStore, request{Do: doCount, Counts: &n}, requestTimeout)
	if err != nil {
		c.delivered.Add(n.Delivered)
		c.dead.Add(n.Dead)
		c.failed.Add(n.Failed)
	}
	return err
}
