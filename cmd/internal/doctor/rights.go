package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/service"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// anyCampaign stands for the campaign in a subject.
const anyCampaign = "scrip-doctor"

// rights examines the users on NATS: that of scrip's servers, and that of Options.As.
func (v *visit) rights(ctx context.Context) (all []Finding) {
	var own *nats.Conn
	if address := v.natsURL(); address != "" {
		nc, err := v.connect(address)
		if err == nil { // check nats reports it
			defer nc.Close()
			own, all = nc, servers(ctx, nc)
		}
	}
	if v.As == "" {
		return all
	}
	return append(all, v.user(ctx, own)...)
}

// servers examines the user of scrip's servers, which make streams and consumers and answer requests.
func servers(ctx context.Context, nc *nats.Conn) []Finding {
	info, err := userInfo(ctx, nc)
	switch {
	case err != nil:
		return bad(Warn, "look at the configuration of the NATS servers", "the rights of the servers' user cannot be read: %v", err)
	case !info.limited():
		return good("the servers' user may do everything in account %s", info.Account)
	}
	lanes := topology.DefaultLanes
	if js, err := jetstream.New(nc); err == nil {
		ctx, cancel := context.WithTimeout(ctx, answerWait)
		defer cancel()
		if log, found, err := topology.Inspect(ctx, js); err == nil && found {
			lanes = log.Lanes
		}
	}
	want := natsauth.OfServers(lanes)
	lacks := slices.Concat(without(want.Publish, info.Permissions.Publish.Allow), without(want.Subscribe, info.Permissions.Subscribe.Allow))
	if len(lacks) > 0 {
		return bad(Fail, fmt.Sprintf("print the accounts again, `scrip nats config --lanes %d`, and restart the NATS servers one by one", lanes),
			"user %s of account %s, as which servers connect, lacks %d rights that they need, %s among them", info.User, info.Account, len(lacks), lacks[0])
	}
	return good("the servers' user has the rights that servers need in account %s", info.Account)
}

// without returns what a list of permissions lacks; one that is empty allows everything.
func without(want, allowed []string) []string {
	return slices.DeleteFunc(slices.Clone(want), func(s string) bool { return len(allowed) == 0 || slices.Contains(allowed, s) })
}

// info is what NATS has about the user of a connection.
type info struct {
	User        string `json:"user"`
	Account     string `json:"account"`
	Permissions struct {
		Publish   rule `json:"publish"`
		Subscribe rule `json:"subscribe"`
	} `json:"permissions"`
}

// rule is what a user may publish or subscribe to; Allow empty = everything, but subjects that NATS keeps for itself.
type rule struct{ Allow []string }

// limited reports whether the user may not do everything in its account.
func (i *info) limited() bool {
	return len(i.Permissions.Publish.Allow)+len(i.Permissions.Subscribe.Allow) > 0
}

func userInfo(ctx context.Context, nc *nats.Conn) (info, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	var answer struct{ Data info }
	m, err := nc.RequestWithContext(ctx, natsauth.UserInfo, nil)
	if err == nil {
		err = json.Unmarshal(m.Data, &answer)
	}
	return answer.Data, err
}

// tryAll tries, as the user of a connection, each request of the micro service, and the JetStream API. A request has a header
// that makes the service refuse it before it reads anything else, so none has an effect. campaign is in the subjects that have
// one.
func (d *denials) tryAll(ctx context.Context, nc *nats.Conn, campaign string) (all []Finding) {
	var may, mayNot, silent []string
	for _, subject := range subjects() {
		subject = strings.ReplaceAll(subject, "*", campaign)
		name := strings.TrimSuffix(strings.TrimPrefix(subject, "scrip."), "."+campaign)
		switch allowed, err := d.try(ctx, nc, subject); {
		case errors.Is(err, nats.ErrNoResponders):
			silent = append(silent, name)
		case err != nil:
			return append(all, bad(Fail, "start a server with role api, or see `scrip status`", "%s: no answer: %v", subject, err)...)
		case allowed:
			may = append(may, name)
		default:
			mayNot = append(mayNot, name)
		}
	}
	all = append(all, good("may: %s", list(may))...)
	all = append(all, good("may not: %s", list(mayNot))...)
	switch {
	case len(silent) > 0 && len(may) == 0:
		all = append(all, bad(Fail, "start a server with role api, or see `scrip status`", "no server answers requests")...)
	case len(silent) > 0:
		all = append(all, bad(Fail, "print the accounts again, `scrip nats config`, and restart the NATS servers one by one; upgrade the servers of scrip",
			"may, but no server is reached: %s", list(silent))...)
	}
	open, err := d.api(ctx, nc)
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

// denials collects what the NATS server refused. It reports that apart from the request, which just stays unanswered.
type denials struct {
	mu      sync.Mutex
	text    []string
	changed chan struct{} // closed at the next one; nil = nobody waits
}

func (d *denials) note(_ *nats.Conn, _ *nats.Subscription, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.text = append(d.text, err.Error())
	if d.changed != nil {
		close(d.changed)
		d.changed = nil
	}
}

// of reports whether a subject was refused; else changed is closed at the next denial.
func (d *denials) of(subject string) (refused bool, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, text := range d.text {
		if strings.Contains(text, `"`+subject+`"`) {
			return true, nil
		}
	}
	if d.changed == nil {
		d.changed = make(chan struct{})
	}
	return false, d.changed
}

// request sends a request and waits for its answer, or its denial: refused. The error is nats.ErrNoResponders if nobody gets
// the request.
func (d *denials) request(ctx context.Context, nc *nats.Conn, m *nats.Msg) (answer *nats.Msg, refused bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	m.Reply = nc.NewInbox()
	answers := make(chan *nats.Msg, 1)
	sub, err := nc.ChanSubscribe(m.Reply, answers)
	if err != nil {
		return nil, false, err
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is closed soon
	if err := nc.PublishMsg(m); err != nil {
		return nil, false, err
	}
	for {
		refused, changed := d.of(m.Subject)
		if refused {
			return nil, true, nil
		}
		select {
		case answer := <-answers:
			if len(answer.Data) == 0 && answer.Header.Get("Status") == noResponders {
				return nil, false, nats.ErrNoResponders
			}
			return answer, false, nil
		case <-changed:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

// noResponders is the status of an answer of NATS itself.
const noResponders = "503"

// try sends a request without an effect.
func (d *denials) try(ctx context.Context, nc *nats.Conn, subject string) (allowed bool, err error) {
	_, refused, err := d.request(ctx, nc, &nats.Msg{Subject: subject, Header: nats.Header{service.HeaderTimeout: {"none: this is a trial of rights"}}})
	return err == nil && !refused, err
}

// api reports whether the user may request information about the log's first stream.
func (d *denials) api(ctx context.Context, nc *nats.Conn) (open bool, err error) {
	answer, refused, err := d.request(ctx, nc, &nats.Msg{Subject: jetstream.DefaultAPIPrefix + "STREAM.INFO." + topology.EvtStream(0)})
	switch {
	case errors.Is(err, nats.ErrNoResponders), refused: // an account without JetStream
		return false, nil
	case err != nil:
		return false, err
	}
	return strings.Contains(string(answer.Data), `"state"`), nil
}
