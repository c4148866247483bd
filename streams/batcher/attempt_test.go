package batcher

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// redeem hands in a redemption for the micro service.
func (r *rig) redeem(t *testing.T, id string, deadline time.Time) (waiter, Ticket) {
	t.Helper()
	w := make(waiter, 2)
	cmd := wire.Command{Type: wire.Redeem, ID: id, Code: "AAAA-BBBB-CCCC", OrderID: "o"}
	ticket, err := r.Request(t.Context(), "scrip.redeem", Line{ID: id, JSON: cmd.AppendJSON(nil), Deadline: deadline, To: w})
	if err != nil {
		t.Fatal(err)
	}
	return w, ticket
}

// service answers scrip.redeem; n counts requests from 1, "" is no answer.
func (r *rig) service(t *testing.T, answer func(n int64) string) (requests *atomic.Int64) {
	t.Helper()
	requests = new(atomic.Int64)
	nc := r.server.Conn(t)
	_, err := nc.Subscribe("scrip.redeem", func(m *nats.Msg) {
		if text := answer(requests.Add(1)); text != "" {
			_ = nc.Publish(m.Reply, []byte(text))
		}
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return requests
}

func notDurable(id string) string {
	o := wire.Outcome{ID: id, Status: wire.StatusRefused, Refusal: wire.NotDurable, Message: "the log could not keep the command"}
	return string(o.AppendJSON(nil))
}

// TestAnotherServicesNotDurableIsNotARefusal: the first request reached a service, which handed the redemption to its lane,
// and its reply was lost. The next reach another service while the stream is full: not durable, as far as that one knows.
func TestAnotherServicesNotDurableIsNotARefusal(t *testing.T) {
	r := newRig(t, quick, topology.Spec{Lanes: 1})
	requests := r.service(t, func(n int64) string {
		if n == 1 {
			return ""
		}
		return notDurable("r1")
	})
	w, ticket := r.redeem(t, "r1", time.Time{})
	// The fourth is sent after the answer to the second.
	streamtest.Eventually(t, "the request is repeated", func() bool { return requests.Load() >= 4 || len(w) > 0 })
	err, ok := ticket.GiveUp(context.Canceled)
	var unknown *UnknownError
	if !ok || !errors.As(err, &unknown) {
		t.Errorf("given up: %v, %v, although the first attempt may have been stored", ok, err)
	}
	r.empty(t)
}

// TestADecidedOutcomeEndsTheDoubt that a service's not_durable leaves.
func TestADecidedOutcomeEndsTheDoubt(t *testing.T) {
	r := newRig(t, quick, topology.Spec{Lanes: 1})
	r.service(t, func(n int64) string {
		switch n {
		case 1:
			return ""
		case 2:
			return notDurable("r1")
		}
		o := wire.Outcome{ID: "r1", Status: wire.StatusRedeemed, Repeat: true}
		return string(o.AppendJSON(nil))
	})
	w, _ := r.redeem(t, "r1", time.Time{})
	if a := w.get(t); a.err != nil || a.Status != wire.StatusRedeemed {
		t.Errorf("answered %+v", a)
	}
	r.empty(t)
}

// TestTheOnlyAttemptsNotDurableIsARefusal: nothing else was ever sent.
func TestTheOnlyAttemptsNotDurableIsARefusal(t *testing.T) {
	r := newRig(t, Options{RetryAfter: time.Hour}, topology.Spec{Lanes: 1})
	r.service(t, func(int64) string { return notDurable("r1") })
	w, _ := r.redeem(t, "r1", time.Time{})
	if a := w.get(t); a.err != nil || a.Refusal != wire.NotDurable {
		t.Errorf("answered %+v", a)
	}
	r.empty(t)
}

// TestAttemptsAreForgotten: those without responders at once, of the others the newest are kept.
func TestAttemptsAreForgotten(t *testing.T) {
	for name, answer := range map[string]func(int64) string{"no responder": nil, "no answer": func(int64) string { return "" }} {
		t.Run(name, func(t *testing.T) {
			var full atomic.Bool // nothing more is sent
			r := newRig(t, Options{RetryAfter: time.Millisecond}, topology.Spec{Lanes: 1}, func(c *Batcher) {
				c.publish = func(m *nats.Msg) error {
					if full.Load() {
						return nats.ErrMaxPayload
					}
					return c.nc.PublishMsg(m)
				}
			})
			if answer != nil {
				r.service(t, answer)
			}
			_, ticket := r.redeem(t, "r1", time.Time{})
			streamtest.Eventually(t, "it was sent often", func() bool { return r.Counters().Messages > 2*maxAttempts })
			ro := r.routes[directRoute].Load()
			ro.mu.Lock()
			n := len(ro.attempts)
			ro.mu.Unlock()
			if n > maxAttempts {
				t.Errorf("%d attempts are remembered for one line", n)
			}
			full.Store(true)
			if answer == nil {
				streamtest.Eventually(t, "no attempt found a responder", func() bool {
					ro.mu.Lock()
					defer ro.mu.Unlock()
					if len(ro.attempts) > 0 {
						return false
					}
					for b := range ro.inFlight {
						b.retryAt = math.MaxInt64 // no other attempt is being made when the line is given up
					}
					return true
				})
			}
			err, ok := ticket.GiveUp(errors.New("enough"))
			var unknown *UnknownError
			if !ok || errors.As(err, &unknown) != (answer != nil) {
				t.Errorf("given up: %v, %v", ok, err)
			}
			r.empty(t)
		})
	}
}

// TestOnlyKnownErrorsMeanThatNothingWasStored: any other answer of JetStream leaves the result open.
func TestOnlyKnownErrorsMeanThatNothingWasStored(t *testing.T) {
	for _, test := range []struct {
		code        int
		description string
		stored      bool // perhaps
	}{
		{10077, "maximum bytes exceeded", false},
		{10077, "sync SCRIP_CMD_0/msgs/1.blk: input/output error", true},
		{10023, "insufficient resources", false},
		{10047, "insufficient storage resources available", false},
		{10054, "message size exceeds maximum allowed", false},
		{10063, "expected stream does not match", true},
		{10164, "wrong last sequence", true},
	} {
		t.Run(fmt.Sprint(test.code, test.description), func(t *testing.T) {
			r := newRig(t, quick, topology.Spec{Lanes: 1}, func(c *Batcher) {
				c.publish = func(m *nats.Msg) error {
					return c.nc.Publish(m.Reply, fmt.Appendf(nil, `{"error":{"code":503,"err_code":%d,"description":%q}}`, test.code, test.description))
				}
			})
			var deadline time.Time
			if test.stored {
				deadline = time.Now().Add(time.Second)
			}
			w, _ := r.claim(t, "summer", "c1", deadline)
			a := w.get(t)
			var unknown *UnknownError
			if errors.As(a.err, &unknown) != test.stored || a.err == nil && a.Refusal != wire.NotDurable {
				t.Errorf("answered %+v", a)
			}
			r.empty(t)
		})
	}
}

// blocked is a receiver that keeps Run busy until it is let go.
type blocked struct{ began, release chan struct{} }

func (b blocked) Answer([]byte, error) {
	close(b.began)
	<-b.release
}

// TestMissedEventsOfTheConnectionCutNobodyOff: while Run is busy, the connection comes and goes more often than its events
// are kept.
func TestMissedEventsOfTheConnectionCutNobodyOff(t *testing.T) {
	r := newRig(t, quick, topology.Spec{Lanes: 1})
	r.owner.SetFault(func(int, []wire.Command) int { return 0 })
	b := blocked{make(chan struct{}), make(chan struct{})}
	if _, err := r.Send(t.Context(), 0, claimLine("summer", "late", time.Now().Add(time.Millisecond), b)); err != nil {
		t.Fatal(err)
	}
	<-b.began
	for i := range 4 {
		r.server.Restart(t)
		streamtest.Eventually(t, "it reconnected", func() bool { return r.conn.IsConnected() && r.conn.Stats().Reconnects > uint64(i) })
	}
	r.owner.SetFault(nil)
	close(b.release)
	w, _ := r.claim(t, "summer", "c1", time.Time{})
	a := w.get(t)
	a.claimed(t, "c1")
}
