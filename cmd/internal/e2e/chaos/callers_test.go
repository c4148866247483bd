package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

const (
	callersOfSDK   = 16
	callersOfNATS  = 16
	connsOfEach    = 4 // connections, each to the node that chance gives it
	thinkLeast     = 50 * time.Millisecond
	thinkMost      = 150 * time.Millisecond
	requestTimeout = 2 * time.Second // of callers without the SDK
	retryAfter     = 100 * time.Millisecond
)

// callers claim at a low rate, half of them through the SDK, half by plain NATS requests to the micro service, and retry
// under the same id until there is an answer. Every lane has a campaign.
type callers struct {
	sdk       *client.Client // of the first connection
	ledger    *ledger
	timeline  *timeline
	campaigns []string // by lane
	stop      context.CancelFunc
	running   sync.WaitGroup
}

func startCallers(t *testing.T, site *Site, lanes int, seed uint64) *callers {
	t.Helper()
	c := &callers{ledger: newLedger(), timeline: newTimeline(lanes), campaigns: e2e.Campaigns(lanes)}
	var conns []*nats.Conn
	var movers []*natsx.Mover
	var clients []*client.Client
	for i := range connsOfEach {
		conns = append(conns, site.Conn(t, natsx.Options(fmt.Sprint("caller ", i))...))
		movers = append(movers, natsx.NewMover(conns[i]))
		clients = append(clients, client.New(site.Conn(t, natsx.Options(fmt.Sprint("sdk ", i))...), client.Options{}))
		t.Cleanup(clients[i].Close)
	}
	c.sdk = clients[0]
	for _, name := range c.campaigns {
		settings := wire.DefaultSettings(10_000_000)
		settings.ValidFor = lifetime
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if out, err := c.sdk.CreateCampaign(ctx, name, settings); err != nil || out.Refused() {
			t.Fatal(out, err)
		}
		cancel()
	}
	ctx, stop := context.WithCancel(t.Context())
	c.stop = stop
	for n := range callersOfSDK {
		rng := rand.New(rand.NewPCG(seed, uint64(n)+10))
		c.running.Go(func() { c.bySDK(ctx, clients[n%connsOfEach], n, rng) })
	}
	for n := range callersOfNATS {
		rng := rand.New(rand.NewPCG(seed, uint64(n)+1000))
		c.running.Go(func() { c.byRequest(ctx, conns[n%connsOfEach], movers[n%connsOfEach], callersOfSDK+n, rng) })
	}
	t.Cleanup(c.end)
	return c
}

// end stops all callers.
func (c *callers) end() {
	c.stop()
	c.running.Wait()
}

// claimed notes what a claim brought.
func (c *callers) claimed(lane int, customer string, out wire.Outcome, err error) bool {
	ok := c.ledger.Claimed(c.campaigns[lane], customer, out, err)
	if ok {
		c.timeline.note(lane)
	}
	return ok
}

func (c *callers) bySDK(ctx context.Context, sdk *client.Client, worker int, rng *rand.Rand) {
	for i := 0; think(ctx, rng); i++ {
		lane, customer := rng.IntN(len(c.campaigns)), e2e.Customer(rng, worker, i)
		campaign := c.campaigns[lane]
		out, err := sdk.Claim(ctx, campaign, customer)
		if !c.claimed(lane, customer, out, err) {
			continue
		}
		switch rng.IntN(8) {
		case 0, 1:
			if c.ledger.Redeem(ctx, sdk, out.Code, customer) {
				c.timeline.note(lane)
			}
		case 2:
			set, err := sdk.Remind(ctx, campaign, customer, wire.KindExpires, remindBefore)
			c.ledger.reminds(campaign+"/"+customer, set, err)
		}
	}
}

// byRequest sends requests to the micro service as a program without the SDK does.
func (c *callers) byRequest(ctx context.Context, nc *nats.Conn, mover *natsx.Mover, worker int, rng *rand.Rand) {
	for i := 0; think(ctx, rng); i++ {
		lane, customer := rng.IntN(len(c.campaigns)), e2e.Customer(rng, worker, i)
		out, err := c.request(ctx, nc, mover, c.campaigns[lane], fmt.Sprintf("id-%d-%d", worker, i), customer)
		c.claimed(lane, customer, out, err)
	}
}

// request retries until there is an answer. Error replies and silence mean that the result is not known.
func (c *callers) request(ctx context.Context, nc *nats.Conn, mover *natsx.Mover, campaign, id, customer string) (wire.Outcome, error) {
	body, err := json.Marshal(map[string]string{"id": id, "customer_id": customer})
	if err != nil {
		return wire.Outcome{}, err
	}
	for {
		limited, cancel := context.WithTimeout(ctx, requestTimeout)
		reply, err := nc.RequestWithContext(limited, "scrip.claim."+campaign, body)
		cancel()
		switch {
		case ctx.Err() != nil:
			return wire.Outcome{}, context.Canceled
		case errors.Is(err, nats.ErrConnectionClosed):
			return wire.Outcome{}, err
		case errors.Is(err, nats.ErrNoResponders), errors.Is(err, context.DeadlineExceeded):
			mover.Unanswered()
		case err == nil && reply.Header.Get(micro.ErrorCodeHeader) == "":
			mover.Answered()
			out, err := wire.ParseOutcome(reply.Data)
			if err != nil || out.Refusal != wire.NotDurable {
				return out, err
			}
		}
		until(time.Now().Add(retryAfter))
	}
}

// think pauses between two calls; false = it is over.
func think(ctx context.Context, rng *rand.Rand) bool {
	pause := time.NewTimer(thinkLeast + time.Duration(rng.Int64N(int64(thinkMost-thinkLeast))))
	defer pause.Stop()
	select {
	case <-pause.C:
		return true
	case <-ctx.Done():
		return false
	}
}
