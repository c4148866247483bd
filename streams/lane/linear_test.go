package lane_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// A recorded history of concurrent claims, redeems, rollbacks and voids must be linearizable: there is one order of all
// operations, each between its call and its answer, in which a lane without concurrency would have answered the same.
// The pool of a campaign and each of its coupons are objects of their own, so each is judged by itself. A void is an operation
// of both: it frees its customer's place.

const (
	poolSize = 40 // coupons per campaign
	maxUses  = 2  // redemptions per coupon
	orders   = 3  // per coupon, in all
)

// call is one operation.
type call struct {
	object   string // "pool c0" or "coupon XXXX-XXXX-XXXX"
	n        uint32 // of a void of a pool: the coupon
	kind     wire.CommandType
	customer string
	order    int
	attempts int // how often it was sent; more than once: the first may have had the effect
}

// result is its outcome; unknown without any answer.
type result struct {
	wire.Outcome
	unknown bool
}

// pool is the state of a campaign: customer of coupon 1, of coupon 2, …; - of a void one.
type pool struct{ holders string }

// uses is the state of a coupon. Of each order: - never, R redeemed, B rolled back.
type uses struct {
	count  uint32
	voided bool
	orders string
}

var model = (&porcupine.NondeterministicModel{
	Init:  func() []any { return []any{nil} },
	Step:  func(state, input, output any) []any { return stepOf(state, input.(call), output.(result)) },
	Equal: func(a, b any) bool { return a == b },
	DescribeOperation: func(input, output any) string {
		c, r := input.(call), output.(result)
		return fmt.Sprintf("%s %s %s%d → %s %s n=%d repeat=%v unknown=%v", c.kind, c.object, c.customer, c.order, r.Status, r.Refusal, r.N, r.Repeat, r.unknown)
	},
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := map[string][]porcupine.Operation{}
		var names []string
		add := func(name string, op porcupine.Operation) {
			if parts[name] == nil {
				names = append(names, name)
			}
			parts[name] = append(parts[name], op)
		}
		claims := map[string]call{} // by code: what a void of it is to its pool
		for _, op := range history {
			if c, r := op.Input.(call), op.Output.(result); c.kind == wire.Claim && r.Status == wire.StatusClaimed {
				claims["coupon "+r.Code] = call{object: c.object, kind: wire.Void, n: r.N}
			}
		}
		for _, op := range history {
			c := op.Input.(call)
			add(c.object, op)
			if v, known := claims[c.object]; c.kind == wire.Void && known {
				op.Input = v
				add(v.object, op)
			}
		}
		var list [][]porcupine.Operation
		for _, name := range names {
			list = append(list, parts[name])
		}
		return list
	},
}).ToModel()

// stepOf returns the states in which a lane without concurrency would have given that answer.
func stepOf(state any, c call, r result) []any {
	if c.kind == wire.Claim || c.n != 0 {
		p, _ := state.(pool)
		return claimStep(p, c, r)
	}
	u, known := state.(uses)
	if !known {
		u.orders = strings.Repeat("-", orders)
	}
	return couponStep(u, c, r)
}

func claimStep(p pool, c call, r result) (next []any) {
	holders := strings.Fields(p.holders)
	if c.kind == wire.Void {
		if r.unknown {
			next = append(next, p)
		}
		if int(c.n) <= len(holders) {
			holders[c.n-1] = "-"
			next = append(next, pool{" " + strings.Join(holders, " ")})
		}
		return next
	}
	for i, h := range holders {
		if h == c.customer {
			if r.unknown || r.Status == wire.StatusClaimed && r.Repeat && int(r.N) == i+1 {
				return []any{p}
			}
			return nil
		}
	}
	if r.unknown {
		next = append(next, p)
	}
	if len(holders) == poolSize {
		if r.Refusal == wire.SoldOut {
			next = append(next, p)
		}
		return next
	}
	if r.unknown || r.Status == wire.StatusClaimed && int(r.N) == len(holders)+1 && (!r.Repeat || c.attempts > 1) {
		next = append(next, pool{p.holders + " " + c.customer})
	}
	return next
}

func couponStep(u uses, c call, r result) (next []any) {
	if r.unknown {
		next = append(next, u)
	}
	// fresh is the answer of a command that did it; sent twice, the answer received may be the repeat.
	fresh := func(status string, count uint32) bool {
		return r.unknown || r.Status == status && r.RedeemedCount == count && (!r.Repeat || c.attempts > 1)
	}
	same := func(ok bool) {
		if ok && !r.unknown {
			next = append(next, u)
		}
	}
	mark := u
	switch c.kind {
	case wire.Redeem:
		switch {
		case u.orders[c.order] == 'R':
			same(r.Status == wire.StatusRedeemed && r.Repeat)
		case u.voided:
			same(r.Refusal == wire.Voided)
		case u.count >= maxUses:
			same(r.Refusal == wire.RedemptionLimitReached)
		case fresh(wire.StatusRedeemed, u.count+1), c.attempts > 1 && (r.Status == wire.StatusRedeemed && r.Repeat || r.Refusal == wire.RedemptionRolledBack):
			// Of one that was sent again the answer may be of the retry: the order may be rolled back by then, and redeemed again.
			mark.count, mark.orders = u.count+1, u.orders[:c.order]+"R"+u.orders[c.order+1:]
			next = append(next, mark)
		}
	case wire.Rollback:
		switch u.orders[c.order] {
		case '-':
			same(r.Refusal == wire.NotRedeemed)
		case 'B':
			same(r.Status == wire.StatusRolledBack && r.Repeat)
		case 'R':
			// The count in a repeat is that of the moment of the retry, when the order may be redeemed again.
			if fresh(wire.StatusRolledBack, u.count-1) || c.attempts > 1 && (r.Status == wire.StatusRolledBack && r.Repeat || r.Refusal == wire.Outdated) {
				mark.count, mark.orders = u.count-1, u.orders[:c.order]+"B"+u.orders[c.order+1:]
				next = append(next, mark)
			}
		}
	case wire.Void:
		if u.voided {
			same(r.Status == wire.StatusVoided && r.Repeat)
		} else if r.unknown || r.Status == wire.StatusVoided && (!r.Repeat || c.attempts > 1) {
			mark.voided = true
			next = append(next, mark)
		}
	}
	return next
}

// recorder keeps a history.
type recorder struct {
	started time.Time
	mu      sync.Mutex
	ops     []porcupine.Operation
	codes   []string
	lost    int // operations whose result is unknown
	again   int // operations that were sent more than once
}

func (h *recorder) note(client int, c call, r result, called time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	returned := int64(time.Since(h.started))
	if r.unknown {
		returned = math.MaxInt64 // it may happen yet
		h.lost++
	}
	if c.attempts > 1 {
		h.again++
	}
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: c, Call: int64(called), Output: r, Return: returned})
	if c.kind == wire.Claim && !r.unknown && r.Status == wire.StatusClaimed {
		h.codes = append(h.codes, r.Code)
	}
}

// random picks a code of an answer.
func (h *recorder) random(rng *rand.Rand) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.codes) == 0 {
		return ""
	}
	return h.codes[max(0, len(h.codes)-1-rng.IntN(8))] // crowd on few
}

// worker runs n operations, one after the other, and further ones until the history is full, 10 n at most.
func (h *recorder) worker(ctx context.Context, nc *nats.Conn, client, n int, patience time.Duration, rng *rand.Rand, full func(*recorder) bool) error {
	for i := 0; i < n || i < 10*n && !full(h); i++ {
		id := fmt.Sprintf("w%d-%d", client, i)
		c := call{kind: wire.Claim, customer: fmt.Sprint("customer", rng.IntN(120))}
		campaign := fmt.Sprint("c", rng.IntN(2))
		c.object = "pool " + campaign
		line := fmt.Sprintf(`{"id":"%s","type":"claim","campaign":"%s","customer_id":"%s"}`, id, campaign, c.customer)
		if code := h.random(rng); code != "" && rng.IntN(3) != 0 {
			c = call{object: "coupon " + code, kind: []wire.CommandType{wire.Redeem, wire.Redeem, wire.Redeem, wire.Rollback, wire.Rollback, wire.Void}[rng.IntN(6)], order: rng.IntN(orders)}
			line = fmt.Sprintf(`{"id":"%s","type":"%s","code":"%s","order_id":"order%d"}`, id, c.kind, code, c.order)
			if c.kind == wire.Void {
				line = fmt.Sprintf(`{"id":"%s","type":"void","code":"%s","reason":"because"}`, id, code)
			}
		}
		called := time.Since(h.started)
		r, err := request(ctx, nc, line, &c, patience)
		if err != nil {
			return err
		}
		h.note(client, c, r, called)
	}
	return nil
}

// request retries until there is an answer or patience ends.
func request(ctx context.Context, nc *nats.Conn, line string, c *call, patience time.Duration) (result, error) {
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) && ctx.Err() == nil {
		c.attempts++
		inbox := nc.NewRespInbox()
		sub, err := nc.SubscribeSync(inbox)
		if err != nil {
			return result{}, err
		}
		msg := &nats.Msg{Subject: topology.LaneCmd(0), Data: []byte(line), Header: nats.Header{topology.HeaderReply: {inbox}}}
		if err := nc.PublishMsg(msg); err != nil {
			return result{}, err
		}
		answer, err := sub.NextMsg(min(time.Until(deadline), 200*time.Millisecond))
		_ = sub.Unsubscribe()
		if err != nil {
			continue
		}
		out, err := wire.ParseOutcome(bytes.TrimSpace(answer.Data))
		return result{Outcome: out}, err
	}
	return result{unknown: true}, nil
}

// record lets workers work until the history is full, and returns it. The workers share the patiences among them.
func record(r *rig, full func(*recorder) bool, workers, n int, patience ...time.Duration) *recorder {
	r.t.Helper()
	for i := range 2 {
		if out := r.one(create(fmt.Sprint("c", i), poolSize, fmt.Sprintf(`,"max_redemptions":%d`, maxUses))); out.Refused() {
			r.t.Fatalf("create: %+v", out)
		}
	}
	seed := uint64(time.Now().UnixNano())
	r.t.Logf("seed %d", seed)
	h := &recorder{started: time.Now()}
	errs := make(chan error, workers)
	for w := range workers {
		go func() {
			errs <- h.worker(r.t.Context(), r.nc, w, n, patience[w%len(patience)], rand.New(rand.NewPCG(seed, uint64(w))), full)
		}()
	}
	for range workers {
		if err := <-errs; err != nil {
			r.t.Fatal(err)
		}
	}
	return h
}

func linearizable(history []porcupine.Operation) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(model, history, 2*time.Minute)
}

func (h *recorder) check(t *testing.T) {
	t.Helper()
	kinds := map[string]int{}
	for _, op := range h.ops {
		r := op.Output.(result)
		kinds[op.Input.(call).kind.String()+" "+r.Status+string(r.Refusal)]++
	}
	t.Logf("%d operations, %d sent again, %d unknown: %v", len(h.ops), h.again, h.lost, kinds)
	if got := linearizable(h.ops); got != porcupine.Ok {
		for _, part := range model.Partition(h.ops) {
			if linearizable(part) == porcupine.Ok {
				continue
			}
			for _, op := range part {
				t.Logf("%12d to %12d: %s", op.Call, op.Return, model.DescribeOperation(op.Input, op.Output))
			}
		}
		t.Fatalf("the history of %d operations is %s", len(h.ops), got)
	}
	for _, need := range []string{"claim claimed", "redeem redeemed", "rollback rolled_back", "void voided", "redeem refusedvoided"} {
		if kinds[need] == 0 {
			t.Errorf("the history has no %q", need)
		}
	}
}

// TestAHistoryUnderFaultsIsLinearizable does to every twelfth of the owner's event writes what networks do. A write without
// an ack blocks the lane for longer than some callers wait, so they never hear; others retry until they do.
func TestAHistoryUnderFaultsIsLinearizable(t *testing.T) {
	r := newRig(t)
	p, o := r.throughProxy()
	o.WriteTimeout = 900 * time.Millisecond // longer than the shorter patience
	r.up(r.start(o))
	faults := []fault{cutBefore, cutAfter, swallowed, ackSwallowed, doubled}
	p.armAll(12, faults...)
	full := func(h *recorder) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return p.struck() >= len(faults) && h.lost > 0 && h.again > 0
	}
	h := record(r, full, 8, 50, 450*time.Millisecond, 20*time.Second)
	h.check(t)
	t.Logf("%d faults struck", p.struck())
	if !full(h) {
		t.Errorf("%d faults struck, %d operations stayed unknown, %d were repeated; all must happen", p.struck(), h.lost, h.again)
	}
}

// TestAHistoryOfCompetingOwnersIsLinearizable runs two or three owners of the lane at any time, each for a while only.
func TestAHistoryOfCompetingOwnersIsLinearizable(t *testing.T) {
	r := newRig(t)
	competing := []*running{r.up(r.start(r.options())), r.up(r.start(r.options()))}
	ctx, cancel := context.WithCancel(t.Context())
	var coming sync.WaitGroup
	coming.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			competing = append(competing, r.start(r.options()))
			if err := competing[0].stop(); err != nil {
				t.Error(err)
			}
			competing = competing[1:]
		}
	})
	// Those who only publish do not count: most of what competing owners publish is refused.
	var mu sync.Mutex
	writers := map[string]bool{}
	stored, err := r.js.OrderedConsumer(t.Context(), topology.EvtStream(0), jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	watch, err := stored.Consume(func(m jetstream.Msg) {
		mu.Lock()
		defer mu.Unlock()
		writers[m.Headers().Get(topology.HeaderOwner)] = true
	})
	if err != nil {
		t.Fatal(err)
	}
	enough := func(*recorder) bool {
		mu.Lock()
		defer mu.Unlock()
		return len(writers) >= 3
	}
	h := record(r, enough, 8, 100, 2*time.Minute)
	watch.Stop()
	cancel()
	coming.Wait()
	h.check(t)
	messages, _ := r.events()
	owners := map[string]bool{}
	for _, m := range messages {
		owners[m.Owner] = true
	}
	t.Logf("%d takings of the lane wrote to it", len(owners))
	if len(owners) < 3 {
		t.Errorf("only %d takings of the lane wrote to it", len(owners))
	}
}

// TestAWrongHistoryIsRejected tests the test: histories with one lie each.
func TestAWrongHistoryIsRejected(t *testing.T) {
	coupon, inPool := "coupon X", "pool c"
	claimedAs := func(code, customer string, n uint32, repeat bool) (call, result) {
		return call{object: inPool, kind: wire.Claim, customer: customer, attempts: 1}, result{Outcome: wire.Outcome{Status: wire.StatusClaimed, N: n, Code: code, Repeat: repeat}}
	}
	claimed := func(customer string, n uint32, repeat bool) (call, result) { return claimedAs("", customer, n, repeat) }
	used := func(order int, count uint32) (call, result) {
		return call{object: coupon, kind: wire.Redeem, order: order, attempts: 1}, result{Outcome: wire.Outcome{Status: wire.StatusRedeemed, RedeemedCount: count}}
	}
	back := func(order int, count uint32) (call, result) {
		return call{object: coupon, kind: wire.Rollback, order: order, attempts: 1}, result{Outcome: wire.Outcome{Status: wire.StatusRolledBack, RedeemedCount: count}}
	}
	voided := func() (call, result) {
		return call{object: coupon, kind: wire.Void, attempts: 1}, result{Outcome: wire.Outcome{Status: wire.StatusVoided}}
	}
	lost := func(c call, _ result) (call, result) { return c, result{unknown: true} }
	type line struct {
		from, to int64
		c        call
		r        result
	}
	at := func(from, to int64) func(call, result) line {
		return func(c call, r result) line { return line{from, to, c, r} }
	}
	for _, c := range []struct {
		name  string
		lines []line
		want  porcupine.CheckResult
	}{
		{"two customers, one coupon", []line{at(0, 9)(claimed("a", 1, false)), at(1, 8)(claimed("b", 1, false))}, porcupine.Illegal},
		{"a repeat with another coupon", []line{at(0, 1)(claimed("a", 1, false)), at(2, 3)(claimed("b", 2, false)), at(4, 5)(claimed("a", 2, true))}, porcupine.Illegal},
		{"a second coupon after a void", []line{at(0, 1)(claimedAs("X", "a", 1, false)), at(2, 3)(voided()), at(4, 5)(claimed("a", 2, false))}, porcupine.Ok},
		{"a second coupon before the void", []line{at(0, 1)(claimedAs("X", "a", 1, false)), at(2, 3)(claimed("a", 2, false)), at(4, 5)(voided())}, porcupine.Illegal},
		{"the void coupon after the void", []line{at(0, 1)(claimedAs("X", "a", 1, false)), at(2, 3)(voided()), at(4, 5)(claimed("a", 1, true))}, porcupine.Illegal},
		{"the second before the first", []line{at(0, 1)(claimed("a", 2, false)), at(2, 3)(claimed("b", 1, false))}, porcupine.Illegal},
		{"the second before the first, at the same time", []line{at(0, 9)(claimed("a", 2, false)), at(2, 3)(claimed("b", 1, false))}, porcupine.Ok},
		{"redeemed for one order twice", []line{at(0, 1)(used(0, 1)), at(2, 3)(used(0, 2))}, porcupine.Illegal},
		{"redeemed three times", []line{at(0, 9)(used(0, 1)), at(0, 9)(used(1, 2)), at(0, 9)(used(2, 3))}, porcupine.Illegal},
		{"redeemed after the void", []line{at(0, 1)(voided()), at(2, 3)(used(0, 1))}, porcupine.Illegal},
		{"rolled back before it was redeemed", []line{at(0, 1)(back(0, 0)), at(2, 3)(used(0, 1))}, porcupine.Illegal},
		{"rolled back, and the count differs", []line{at(0, 1)(used(0, 1)), at(2, 3)(back(0, 0)), at(4, 5)(used(1, 2))}, porcupine.Illegal},
		{"an unknown rollback that must have happened", []line{at(0, 1)(used(0, 1)), at(2, math.MaxInt64)(lost(back(0, 0))), at(4, 5)(used(1, 1))}, porcupine.Ok},
		{"an unknown rollback that cannot have happened yet", []line{at(0, 1)(used(0, 1)), at(2, 3)(used(1, 1)), at(4, math.MaxInt64)(lost(back(0, 0)))}, porcupine.Illegal},
	} {
		t.Run(c.name, func(t *testing.T) {
			var history []porcupine.Operation
			for i, l := range c.lines {
				history = append(history, porcupine.Operation{ClientId: i, Input: l.c, Call: l.from, Output: l.r, Return: l.to})
			}
			if got := linearizable(history); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
