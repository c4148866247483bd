package command

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Every place where a message can be lost, before it took effect and after. The claim must be answered, once, and have had one
// effect. What does not fit its message is dropped.
func TestFaults(t *testing.T) {
	for _, test := range []struct {
		name       string
		fates      []fate
		messages   int  // that are sent
		repeat     bool // the answer was given before
		late       uint64
		mismatched uint64
		after      time.Duration // at most
	}{
		{name: "None", messages: 1},
		{name: "MessageLostBeforeTheServer", fates: []fate{{lost: true}}, messages: 2, after: 2100 * time.Millisecond},
		{name: "PublishFailedWithNothingSent", fates: []fate{{lost: true, fails: nats.ErrReconnectBufExceeded}}, messages: 2, after: 200 * time.Millisecond},
		{name: "PublishFailedAfterSending", fates: []fate{{fails: errors.New("write: broken pipe")}}, messages: 1},
		{name: "PubAckLost", fates: []fate{{noAck: true}}, messages: 1},
		{name: "OutcomeLost", fates: []fate{{silent: true}}, messages: 2, repeat: true, after: 2100 * time.Millisecond},
		{name: "OutcomeLostTwice", fates: repeated(2, fate{silent: true}), messages: 3, repeat: true, after: 5 * time.Second},
		{name: "PubAckAndOutcomeLost", fates: []fate{{noAck: true, silent: true}}, messages: 2, repeat: true, after: 2100 * time.Millisecond},
		{name: "OutcomeTwice", fates: []fate{{copies: 1}}, messages: 1, late: 1},
		{name: "CutAfterSending", fates: []fate{{silent: true, cut: true}}, messages: 2, repeat: true, after: 50 * time.Millisecond},
		{name: "CutBeforeSending", fates: []fate{{lost: true, cut: true}}, messages: 2, after: 50 * time.Millisecond},
		{name: "NoneThere", fates: repeated(3, fate{alone: true}), messages: 4, after: 2 * time.Second},
		{name: "StoredPerhaps", fates: []fate{{noAck: true, silent: true}, full, full}, messages: 4, repeat: true, after: time.Minute},
		{name: "EmptyOutcome", fates: []fate{answering("")}, messages: 2, repeat: true, mismatched: 1, after: soon},
		{name: "TwoOutcomes", fates: []fate{answering(`{"id":"c","status":"claimed","n":9}` + "\n" + `{"id":"c","status":"claimed","n":9}`)}, messages: 2, repeat: true, mismatched: 1, after: soon},
		{name: "AnothersOutcome", fates: []fate{answering(`{"id":"d","status":"claimed","n":9}`)}, messages: 2, repeat: true, mismatched: 1, after: soon},
		{name: "NoOutcome", fates: []fate{answering("hello")}, messages: 2, repeat: true, mismatched: 1, after: soon},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, Options{}, func(t *testing.T, r *rig) {
				r.fates = test.fates
				started := time.Now()
				w, _ := r.claim("c", 0)
				a := w.get(t)
				a.claimed(t, "c")
				if a.Repeat != test.repeat || a.N != 1 || len(r.decided) != 1 {
					t.Errorf("answered %+v, expected coupon 1, repeat %t; %d effects", a.Outcome, test.repeat, len(r.decided))
				}
				if took := time.Since(started); took > test.after {
					t.Errorf("it took %s, expected %s at most", took, test.after)
				}
				pass(time.Hour)
				c := r.Counters()
				if len(r.sent) != test.messages || c.Late != test.late || c.Mismatched != test.mismatched || c.Retries != uint64(test.messages-1) {
					t.Errorf("%d messages, counters %+v", len(r.sent), c)
				}
				if len(w) != 0 {
					t.Error("the claim was answered twice")
				}
			})
		})
	}
}

// Whatever becomes of many messages, each caller gets its own answer, once.
func TestManyFaults(t *testing.T) {
	kinds := []fate{
		{}, {}, {lost: true}, {silent: true}, {noAck: true}, {copies: 2}, {alone: true}, {cut: true}, {silent: true, cut: true},
		{fails: errors.New("broken pipe")}, {fails: nats.ErrReconnectBufExceeded, lost: true}, refusedBy(10164, "wrong last sequence"), answering("hello"),
	}
	for seed := range uint64(20) {
		inBubble(t, Options{inFlight: 1 + int(seed%3)}, func(t *testing.T, r *rig) {
			rng := rand.New(rand.NewPCG(seed, 1))
			for range 300 {
				r.fates = append(r.fates, kinds[rng.IntN(len(kinds))])
			}
			all := ids(fmt.Sprint("of seed ", seed), 400)
			var waiters []waiter
			for _, id := range all {
				w := make(waiter, 2)
				if _, err := r.add(t.Context(), 0, "", claimLine("summer", id, 0, w)); err != nil {
					t.Fatal(err)
				}
				if waiters = append(waiters, w); rng.IntN(4) == 0 {
					pass(time.Duration(rng.IntN(500)) * time.Millisecond)
				}
			}
			pass(10 * time.Minute)
			coupons := map[uint32]bool{}
			for i, w := range waiters {
				a := w.get(t)
				a.claimed(t, all[i])
				if coupons[a.N] || len(w) > 0 {
					t.Errorf("%s got %+v, which is another's, or was answered twice", all[i], a)
				}
				coupons[a.N] = true
			}
		})
	}
}

// Of the answers of a micro service, not_durable and 503 are about one attempt only: another one may have been stored.
func TestAnswersOfTheService(t *testing.T) {
	o := wire.Outcome{ID: "r", Status: wire.StatusRefused, Refusal: wire.NotDurable, Message: "the log could not keep the command"}
	notDurable := answering(string(o.AppendJSON(nil)))
	for _, test := range []struct {
		name    string
		fates   []fate
		always  fate
		status  string // of the answer; "" = none comes
		denied  bool
		unknown bool // the error of the line
	}{
		{name: "NotDurableAtOnce", fates: []fate{notDurable}, status: wire.StatusRefused},
		{name: "NotDurableAfterALostReply", fates: []fate{{silent: true}}, always: notDurable, unknown: true},
		{name: "DecidedAfterALostReply", fates: []fate{{silent: true}, notDurable}, status: wire.StatusRedeemed},
		{name: "Error", fates: repeated(3, failed("503", "the result is not known")), status: wire.StatusRedeemed},
		{name: "Denied", fates: []fate{failed("403", "no right")}, denied: true},
		{name: "DeniedAfterALostReply", fates: []fate{{silent: true}, failed("403", "no right")}, denied: true, unknown: true},
		{name: "NoneThere", always: fate{alone: true}},
		{name: "Silence", always: fate{silent: true}, unknown: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, Options{}, func(t *testing.T, r *rig) {
				r.fates, r.always = test.fates, test.always
				w, ticket := r.redeem("r")
				pass(10 * time.Minute)
				if m := r.sent[0]; m.Subject != "scrip.redeem" || m.Header.Get("Scrip-Timeout") != "3s" || m.Header.Get("Scrip-By") != "ann" {
					t.Errorf("the request is %+v", m)
				}
				if n := len(r.routes[direct("scrip.redeem")].Load().attempts); n > maxAttempts {
					t.Errorf("%d attempts are remembered for one line", n)
				}
				if test.status != "" {
					if a := w.get(t); a.err != nil || a.Status != test.status {
						t.Errorf("answered %+v", a)
					}
					return
				}
				var err error
				if test.denied {
					var why *DeniedError
					if err = w.get(t).err; !errors.As(err, &why) || why.Why != "no right" {
						t.Errorf("denied with %v", err)
					}
				} else {
					err = r.giveUp(ticket)
				}
				var open *UnknownError
				if errors.As(err, &open) != test.unknown {
					t.Errorf("ended in %v", err)
				}
			})
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
		t.Run(test.description, func(t *testing.T) {
			inBubble(t, Options{}, func(t *testing.T, r *rig) {
				r.always = refusedBy(test.code, test.description)
				w, _ := r.claim("c", time.Minute)
				a := w.get(t)
				if test.stored {
					unknown(t, a.err, "c", ErrDeadline)
				} else if a.err != nil || a.Refusal != wire.NotDurable || r.Counters().NotDurable != 1 {
					t.Errorf("answered %+v", a)
				}
			})
		})
	}
}

// A deadline ends in an unknown result, never in a refusal, unless nothing can have been stored.
func TestADeadline(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, r *rig) {
		r.always = fate{hold: true}
		w, ticket := r.claim("slow", time.Second)
		unknown(t, w.get(t).err, "slow", ErrDeadline)
		if _, ok := ticket.GiveUp(context.Canceled); ok {
			t.Error("what has been answered could still be given up")
		}
		r.release()
		synctest.Wait()
		if r.Counters().Late != 1 || len(w) != 0 {
			t.Errorf("the late outcome: %+v", r.Counters())
		}
		again, _ := r.claim("slow", 0)
		if a := again.get(t); !a.Repeat || a.N != 1 {
			t.Errorf("sent again, the answer is %+v", a)
		}
		r.set(func(n *network) { n.always = fate{alone: true} })
		w, _ = r.claim("hasty", time.Minute)
		if a := w.get(t); a.err != nil || a.ID != "hasty" || a.Refusal != wire.NotDurable {
			t.Errorf("without responders: %+v, expected that the log could not keep it", a)
		}
	})
}

// After a reconnect lines are sent again at once, unless the log is another one.
func TestAReconnect(t *testing.T) {
	for name, same := range map[string]func(context.Context) bool{"unasked": nil, "same": func(context.Context) bool { return true }} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{RetryAfter: time.Hour, Same: same}, func(t *testing.T, r *rig) {
				r.fates = []fate{{silent: true}}
				w, _ := r.claim("cut", 0)
				if err := r.ForceReconnect(); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				a := w.get(t)
				if a.claimed(t, "cut"); !a.Repeat || r.Counters().Retries != 1 {
					t.Errorf("answered %+v, %+v", a, r.Counters())
				}
			})
		})
	}
	t.Run("another", func(t *testing.T) {
		looked := 0
		inBubble(t, Options{Same: func(context.Context) bool {
			<-time.After(time.Second)
			looked++
			return looked == 1
		}}, func(t *testing.T, r *rig) {
			r.fates = []fate{{silent: true}}
			_, ticket := r.claim("cut", 0)
			r.set((*network).reconnect)
			synctest.Wait()
			r.set((*network).reconnect) // while the first answer is awaited
			pass(time.Hour)
			if len(r.sent) != 1 || looked != 2 {
				t.Errorf("%d messages were sent after %d questions", len(r.sent), looked)
			}
			unknown(t, r.giveUp(ticket), "cut", context.Canceled)
		})
	})
}

// A node that was cut off from the others takes commands, as it believes to lead their stream, and answers none. The line is
// answered through another node. One whose lane alone is silent acknowledges, and is not left.
func TestANodeThatAnswersNothingIsLeft(t *testing.T) {
	for _, acknowledges := range []bool{false, true} {
		inBubble(t, Options{}, func(t *testing.T, r *rig) {
			r.always = fate{noAck: !acknowledges, silent: true}
			w, _ := r.claim("c", 0)
			pass(12 * time.Second)
			if left := r.reconnects() > 0; left == acknowledges {
				t.Errorf("it acknowledges: %t, it is left: %t", acknowledges, left)
			}
			r.set(func(n *network) { n.always = fate{} })
			pass(time.Minute)
			w.get(t).claimed(t, "c")
		})
	}
}

// The connection comes and goes more often than its events are kept, as while Run is busy.
func TestMissedEventsOfTheConnectionCutNoCallerOff(t *testing.T) {
	inBubble(t, Options{RetryAfter: time.Hour}, func(t *testing.T, r *rig) {
		r.fates = []fate{{silent: true}}
		late, _ := r.claim("late", 0)
		r.set(func(n *network) { n.mute = true; n.reconnect(); n.reconnect() })
		pass(sweepEvery)
		late.get(t).claimed(t, "late")
		r.set((*network).disconnect)
		pass(sweepEvery)
		w, _ := r.claim("c", 0)
		pass(time.Minute)
		r.set((*network).reconnect)
		pass(sweepEvery)
		w.get(t).claimed(t, "c")
	})
}

// Strangers who know the inbox do no harm.
func TestStrangersInTheInbox(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, r *rig) {
		r.always = fate{hold: true}
		w, _ := r.claim("c", 0)
		tokens := []string{"x", "o", "o9999-1", "o0", "o0-zzzzzzzzzzzzzzzzzzzz", "a0-1", "z0-1"}
		for _, token := range tokens {
			r.set(func(n *network) { n.answer(r.NewInbox()+"."+token, &nats.Msg{Data: []byte("{}")}) })
		}
		synctest.Wait()
		if n := r.Counters().Mismatched; n != uint64(len(tokens)-1) { // a0-1 is the acknowledgement of the claim
			t.Errorf("%d of %d are counted", n, len(tokens))
		}
		r.release()
		w.get(t).claimed(t, "c")
	})
}
