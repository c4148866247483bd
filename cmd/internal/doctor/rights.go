package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/service"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// anyCampaign stands for the campaign in a subject.
const anyCampaign = "scrip-doctor"

// rights tries, as the user of Options.As, each request of the micro service, and the JetStream API. A request has a header
// that makes the service refuse it before it reads anything else, so none has an effect.
func (v *visit) rights(ctx context.Context) (all []Finding) {
	if v.As == "" {
		return nil
	}
	denied := &denials{}
	nc, err := nats.Connect(v.As, nats.Name("scrip doctor"), nats.Timeout(answerWait), nats.NoReconnect(), nats.ErrorHandler(denied.note))
	if err != nil {
		return bad(Fail, "check user and password, or the key; `scrip env` prints those of the server on a data directory", "connecting as this user to %s: %v", withoutPassword(v.As), err)
	}
	defer nc.Close()
	var may, mayNot []string
	for _, subject := range subjects() {
		subject = strings.ReplaceAll(subject, "*", anyCampaign)
		name := strings.TrimSuffix(strings.TrimPrefix(subject, "scrip."), "."+anyCampaign)
		switch allowed, err := denied.try(ctx, nc, subject); {
		case err != nil:
			all = append(all, bad(Fail, "start a server with role api, or see `scrip status`", "%s: %v", subject, err)...)
			return all
		case allowed:
			may = append(may, name)
		default:
			mayNot = append(mayNot, name)
		}
	}
	all = append(all, good("may: %s", list(may))...)
	all = append(all, good("may not: %s", list(mayNot))...)
	open, err := denied.api(ctx, nc)
	switch {
	case err != nil:
		all = append(all, bad(Warn, "see `scrip status`", "the JetStream API: %v", err)...)
	case open && len(mayNot) > 0:
		all = append(all, bad(Warn, "take away publish on $JS.API.> from users that are not servers, or give them an account of their own",
			"may use the JetStream API on the log, and so delete it, though it may not use all of the service")...)
	case open:
		all = append(all, good("may use the JetStream API on the log, as servers must")...)
	default:
		all = append(all, good("may not use the JetStream API on the log")...)
	}
	return all
}

// subjects of all requests of the service. A last token * is the campaign.
func subjects() (all []string) {
	for operation := range access.Operations() {
		for _, endpoint := range operation.Endpoints() {
			all = append(all, "scrip."+endpoint)
		}
	}
	return all
}

func list(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

// denials collects what the server refused. The server reports it apart from the request, which just stays unanswered.
type denials struct {
	mu   sync.Mutex
	text []string
}

func (d *denials) note(_ *nats.Conn, _ *nats.Subscription, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.text = append(d.text, err.Error())
}

func (d *denials) of(subject string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, text := range d.text {
		if strings.Contains(text, `"`+subject+`"`) {
			return true
		}
	}
	return false
}

// try sends a request without an effect. A denial arrives before the answer to a later ping.
func (d *denials) try(ctx context.Context, nc *nats.Conn, subject string) (allowed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return false, err
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is closed soon
	m := &nats.Msg{Subject: subject, Reply: inbox, Header: nats.Header{service.HeaderTimeout: {"none: this is a trial of rights"}}}
	if err := nc.PublishMsg(m); err != nil {
		return false, err
	}
	if err := nc.FlushWithContext(ctx); err != nil {
		return false, err
	}
	if d.of(subject) {
		return false, nil
	}
	_, err = sub.NextMsgWithContext(ctx)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return false, errors.New("no server answers requests")
	case err != nil && d.of(subject):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("no answer: %w", err)
	}
	return true, nil
}

// api reports whether the user may request information about the log's first stream.
func (d *denials) api(ctx context.Context, nc *nats.Conn) (open bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	subject := jetstream.DefaultAPIPrefix + "STREAM.INFO." + topology.EvtStream(0)
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return false, err
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is closed soon
	if err := errors.Join(nc.PublishRequest(subject, inbox, nil), nc.FlushWithContext(ctx)); err != nil {
		return false, err
	}
	if d.of(subject) {
		return false, nil
	}
	m, err := sub.NextMsgWithContext(ctx)
	switch {
	case errors.Is(err, nats.ErrNoResponders), d.of(subject):
		return false, nil // an account without JetStream
	case err != nil:
		return false, err
	}
	return strings.Contains(string(m.Data), `"state"`), nil
}
