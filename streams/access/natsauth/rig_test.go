package natsauth_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/access/callout"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth/authtest"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/service"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/testsignal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const lanes = 2

// ring makes and revokes keys of a log.
type ring struct {
	t     testing.TB
	store *access.Store
	n     atomic.Int64
}

// add makes a key with the rights of a principal, and waits until it is in force.
func (r *ring) add(p access.Principal) (key string) {
	r.t.Helper()
	n := access.New{Name: fmt.Sprint(p.Name, " ", r.n.Add(1)), Role: p.Role, Campaigns: p.Campaigns, Public: p.Public, Codes: p.Codes, Customers: p.Customers, Rate: p.Rate}
	by := access.Local("test")
	by.Codes = !p.NewOnly
	_, key, err := r.store.Create(context.Background(), n, access.Author{Principal: by})
	if err != nil {
		r.t.Fatal(err)
	}
	return key
}

func (r *ring) revoke(key string) {
	r.t.Helper()
	_, id, err := access.ParseKey(key)
	if err == nil {
		_, err = r.store.Revoke(context.Background(), id, access.Author{Principal: access.Local("test")})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// rig is a server with the accounts, a log whose commands are answered, the service, and log-ins.
type rig struct {
	*streamtest.Server
	registry *access.Registry
	keys     *ring
	owner    *streamtest.Owner
	js       jetstream.JetStream // of the servers' account
	issuer   callout.Issuer

	answer func(keys callout.Keys) (stop func()) // answers log-ins
	away   func()                                // ends the answers
}

func newRig(t testing.TB, options ...streamtest.Option) *rig {
	t.Helper()
	r := newRigWithout(t, options...)
	r.owner = streamtest.StartOwner(t, r.Conn(t), topology.Spec{Lanes: lanes})
	r.serve(t, r.owner.Log)
	return r
}

// newRigWithout is newRig without a log.
func newRigWithout(t testing.TB, options ...streamtest.Option) *rig {
	t.Helper()
	issuer, err := callout.NewIssuer()
	streamtest.Must(t, err)
	r := &rig{Server: streamtest.Start(t, append(options, streamtest.Lanes(lanes), authtest.Accounts(lanes, issuer))...)}
	r.issuer, r.js = issuer, r.JetStream(t)
	return r
}

// serve answers log-ins and requests.
func (r *rig) serve(t testing.TB, log topology.Log) {
	t.Helper()
	store := access.Open(r.js, access.Options{Logger: streamtest.Logger(t)})
	r.keys = &ring{t: t, store: store}
	r.registry = store.Registry()
	r.registry.InForce.Watch()
	run(t, r.registry.Run, r.registry.Ready())
	r.answer = func(keys callout.Keys) (stop func()) {
		logins := callout.New(r.Conn(t), lanes, r.issuer, keys, streamtest.Logger(t))
		return run(t, logins.Run, logins.Ready())
	}
	r.away = r.answer(r.registry)
	svc := service.New(r.Conn(t), log, code.New([32]byte{1}), service.Options{Keys: r.registry})
	run(t, svc.Run, svc.Ready())
}

// run runs a part until stop is called or the test ends, and waits until it is ready.
func run(t testing.TB, what func(context.Context) error, ready <-chan struct{}) (stop func()) {
	t.Helper()
	stop = streamtest.Background(t, what)
	select {
	case <-ready:
	case <-time.After(time.Minute):
		t.Fatal("not ready within a minute")
	}
	return stop
}

// inForce waits until the key opens.
func (r *rig) inForce(t testing.TB, key string) {
	t.Helper()
	becomes(t, r.registry, key, nil)
}

// becomes waits until a registry, whose InForce is watched, answers a key so.
func becomes(t testing.TB, r *access.Registry, key string, want error) {
	t.Helper()
	as := func(uint64) bool { _, err := r.Authenticate(key); return errors.Is(err, want) }
	if !as(0) {
		r.InForce.WaitFor(t, as)
	}
}

// until waits for a fact that Stats of senders show, or what their function did before. Their Changed is watched.
func until(t testing.TB, changed *testsignal.Signal[struct{}], what string, fact func() bool) {
	t.Helper()
	t.Logf("waiting until %s", what)
	if !fact() {
		changed.WaitFor(t, func(struct{}) bool { return fact() })
	}
}

// guest is a connection of a user with a key.
type guest struct {
	*nats.Conn
	denied chan string // errors
}

func (r *rig) guest(t testing.TB, key string, opts ...nats.Option) guest {
	t.Helper()
	g := guest{denied: make(chan string, 4096)}
	opts = append([]nats.Option{nats.Token(key), nats.CustomInboxPrefix(natsx.KeyInbox(key)), nats.MaxReconnects(0), nats.Timeout(time.Minute),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { g.denied <- err.Error() })}, opts...)
	r.inForce(t, key)
	var err error
	if g.Conn, err = nats.Connect(r.ClientURL(), opts...); err != nil {
		t.Fatalf("log-in: %v", err)
	}
	t.Cleanup(g.Close)
	return g
}

// kinds are the kinds of users with keys.
var kinds = map[string]access.Principal{
	"producer": {Name: "shop", Role: access.Producer},
	"limited":  {Name: "one campaign", Role: access.Producer, Campaigns: []string{"summer"}},
	"rated":    {Name: "slow shop", Role: access.Producer, Rate: 1000},
	"new":      {Name: "new shop", Role: access.Producer, NewOnly: true},
	"public":   {Name: "browser", Role: access.Producer, Public: true},
	"support":  {Name: "ann", Role: access.Support},
	"operator": {Name: "bob", Role: access.Operator},
	"analyst":  {Name: "eve", Role: access.Analyst},
	"clear":    {Name: "eva", Role: access.Analyst, Codes: true, Customers: true},
	"sender":   {Name: "push", Role: access.Sender},
}

// shape describes everything in the account of the servers that a message may change: streams, their configuration and
// positions, and consumers.
func (r *rig) shape(t testing.TB) map[string]string {
	t.Helper()
	all := map[string]string{}
	list := r.js.StreamNames(t.Context())
	for name := range list.Name() {
		stream, err := r.js.Stream(t.Context(), name)
		streamtest.Must(t, err)
		info := stream.CachedInfo()
		s := info.State
		if !strings.HasPrefix(name, topology.EvtStreamPrefix) && !strings.HasPrefix(name, topology.RmdStreamPrefix) {
			s.Consumers = 0 // those of the servers come and go
		}
		all[name] = fmt.Sprintf("messages %d to %d, %d of them, %d consumers, %+v", s.FirstSeq, s.LastSeq, s.Msgs, s.Consumers, info.Config)
	}
	streamtest.Must(t, list.Err())
	if len(all) < 3*lanes {
		t.Fatalf("only the streams %v", all)
	}
	return all
}
