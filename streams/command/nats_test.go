package command

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// real is a Lanes beside a real server and the owner of its lanes.
type real struct {
	*Lanes
	t      *testing.T
	server *streamtest.Server
	owner  *streamtest.Owner
	conn   *nats.Conn
}

func newReal(t *testing.T, opts Options, spec topology.Spec) *real {
	t.Helper()
	server := streamtest.Start(t)
	r := &real{t: t, server: server, owner: streamtest.StartOwner(t, server.Conn(t), spec), conn: server.Conn(t, nats.CustomInboxPrefix("_INBOX_shop"))}
	r.Lanes = New(r.conn, opts)
	streamtest.Background(t, r.Run)
	return r
}

func (r *real) claim(campaign, id string) waiter {
	r.t.Helper()
	w := make(waiter, 2)
	if _, err := r.add(r.t.Context(), topology.LaneOf(campaign, r.owner.Log.Lanes), "", claimLine(campaign, id, 0, w)); err != nil {
		r.t.Fatal(err)
	}
	return w
}

// Thousands of callers on two lanes: each gets its own answer, in few messages. The inbox lies under the connection's own
// prefix: the lane answers nowhere else.
func TestConcurrentCallersEachGetTheirOwnAnswer(t *testing.T) {
	r := newReal(t, Options{RetryAfter: time.Hour}, topology.Spec{Lanes: 2}) // however slow the machine, nothing is sent twice
	const callers = 5000
	var all sync.WaitGroup
	var coupons sync.Map
	for i := range callers {
		all.Go(func() {
			id := fmt.Sprintf("caller-%d", i)
			a := r.claim(fmt.Sprintf("campaign-%d", i%7), id).get(t)
			a.claimed(t, id)
			if _, twice := coupons.LoadOrStore(a.Campaign+a.Code, id); twice {
				t.Errorf("%s got a coupon that another caller has", id)
			}
		})
	}
	all.Wait()
	messages, lines := r.owner.Seen()
	if lines != callers || messages > callers/4 {
		t.Errorf("%d callers made %d lines in %d messages", callers, lines, messages)
	}
	if !strings.HasPrefix(r.inbox, "_INBOX_shop.") {
		t.Errorf("the inbox is %s", r.inbox)
	}
}

func TestARestartedServerLosesNoCaller(t *testing.T) {
	r := newReal(t, Options{RetryAfter: 100 * time.Millisecond}, topology.Spec{Lanes: 2})
	const callers = 500
	var n atomic.Int64
	r.owner.SetFault(func(int, []wire.Command) int { return int(n.Add(1)) % 2 }) // every second outcome is lost, too
	all := ids("restart", callers)
	var waiters []waiter
	for i, id := range all {
		waiters = append(waiters, r.claim(fmt.Sprint("c", i%5), id))
		if i == callers/2 {
			r.server.Restart(t)
		}
	}
	for i, w := range waiters {
		w.get(t).claimed(t, all[i])
	}
	if r.owner.Distinct() != callers {
		t.Errorf("%d callers had %d effects", callers, r.owner.Distinct())
	}
}

// A full command stream keeps nothing, so the command is refused, and later lines are taken again once there is room.
func TestAFullStreamRefuses(t *testing.T) {
	r := newReal(t, Options{}, topology.Spec{Lanes: 1, CmdMaxBytes: 2000})
	refused := 0
	for i := 0; refused == 0 && i < 100; i++ {
		id := fmt.Sprint("full-", i)
		a := r.claim("summer", id).get(t)
		if a.err != nil {
			t.Fatal(a.err)
		}
		if a.Refused() {
			if refused++; a.Refusal != wire.NotDurable || a.ID != id || a.Message == "" {
				t.Errorf("refused with %+v", a.Outcome)
			}
		}
	}
	if refused == 0 || r.Counters().NotDurable != 1 {
		t.Fatalf("a stream of 2,000 bytes took a hundred claims; counters %+v", r.Counters())
	}
	js, err := jetstream.New(r.conn)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), topology.CmdStream(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.claim("summer", "after").get(t).claimed(t, "after")
}

// A node that was cut off from the others takes commands, as it believes to lead their stream, and answers none. The line is
// answered through the other node.
func TestANodeThatAnswersNothingIsLeft(t *testing.T) {
	t.Parallel()
	silent, other := streamtest.Start(t), streamtest.Start(t)
	answers := other.Conn(t)
	for nc, answer := range map[*nats.Conn]nats.MsgHandler{
		silent.Conn(t): func(*nats.Msg) {},
		answers: func(m *nats.Msg) {
			line := `{"id":"x","status":"claimed","campaign":"c","customer_id":"customer of x"}`
			if err := answers.Publish(m.Header.Get(topology.HeaderReply), []byte(line)); err != nil {
				t.Error(err)
			}
		},
	} {
		if _, err := nc.Subscribe(topology.LaneCmd(0), answer); err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	nc, err := nats.Connect(fmt.Sprint(silent.ClientURL(), ",", other.ClientURL()), append(natsx.Options("test"), nats.DontRandomize())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	c := New(nc, Options{})
	streamtest.Background(t, c.Run)
	w := make(waiter, 2)
	if _, err := c.add(t.Context(), 0, "", claimLine("c", "x", 0, w)); err != nil {
		t.Fatal(err)
	}
	w.get(t).claimed(t, "x")
}
