package command

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// real is a Lanes beside a real server and the owner of its lanes.
type real struct {
	*Lanes
	t      *testing.T
	server *streamtest.Server
	owner  *streamtest.Owner
}

func newReal(t *testing.T, opts Options) *real {
	t.Helper()
	server := streamtest.Start(t)
	r := &real{t: t, server: server, owner: streamtest.StartOwner(t, server.Conn(t), topology.Spec{Lanes: 2})}
	r.Lanes = New(server.Conn(t, nats.CustomInboxPrefix("_INBOX_shop")), opts)
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
	r := newReal(t, Options{RetryAfter: time.Hour}) // however slow the machine, nothing is sent twice
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
	r := newReal(t, Options{RetryAfter: 100 * time.Millisecond})
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
