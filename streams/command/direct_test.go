package command

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Requests of one endpoint share messages; while one has no answer, the lines that follow go alone.
func TestRequestsShareMessages(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, r *rig) {
		r.set(func(n *network) { n.always = fate{hold: true} })
		var all []waiter
		redeem := func(n int) {
			for range n {
				w, _ := r.redeem(fmt.Sprintf("r%d", len(all)))
				all = append(all, w)
			}
		}
		sizes := func(from int) (lines []int) {
			r.set(func(n *network) {
				for _, m := range n.sent[from:] {
					lines = append(lines, bytes.Count(m.Data, []byte{'\n'}))
				}
			})
			return lines
		}
		redeem(60)
		pass(slowAfter + 2*sweepEvery)
		if got := fmt.Sprint(sizes(0)); got != "[1 1 1 57]" {
			t.Errorf("60 lines in messages of %s", got)
		}
		r.set(func(n *network) { n.always = fate{} })
		shared := len(sizes(0))
		redeem(3)
		if got := fmt.Sprint(sizes(shared)); got != "[1 1 1]" {
			t.Errorf("beside %d messages without an answer lines went in %s", shared, got)
		}
		for _, w := range all[60:] {
			if a := w.get(t); a.err != nil || a.Status != wire.StatusRedeemed {
				t.Errorf("answered %+v", a)
			}
		}
		pass(time.Minute) // the others are sent again
		for i, w := range all[:60] {
			if a := w.get(t); a.err != nil || a.ID != fmt.Sprintf("r%d", i) || len(w) > 0 {
				t.Errorf("line %d: %+v", i, a)
			}
		}
	})
}

// Each line of an answer is for itself: what the service does not know, or counts as too many, is sent again alone.
func TestLinesOfAnAnswer(t *testing.T) {
	inBubble(t, Options{}, func(t *testing.T, r *rig) {
		r.set((*network).disconnect)
		pass(time.Second)
		var all []waiter
		for _, id := range []string{"done", "unknown", "rate", "no", "full"} {
			w, _ := r.redeem(id)
			all = append(all, w)
		}
		answer := answering(strings.Join([]string{
			`{"id":"done","status":"redeemed"}`, `{"id":"unknown","message":"503"}`,
			`{"id":"rate","status":"refused","refusal":"rate_limited"}`, `{"id":"no","status":"refused","refusal":"forbidden","message":"why"}`,
			`{"id":"full","status":"refused","refusal":"not_durable"}`, ""}, "\n"))
		r.set(func(n *network) { n.fates = []fate{answer}; n.reconnect() })
		pass(time.Minute)
		want := []string{wire.StatusRedeemed, wire.StatusRedeemed, wire.StatusRedeemed, "", wire.StatusRefused}
		for i, w := range all {
			a := w.get(t)
			var denied *DeniedError
			var unsent *NotSentError
			if a.Status != want[i] || (i == 3) != (errors.As(a.err, &denied) && errors.As(a.err, &unsent) && denied.Why == "why") || len(w) > 0 {
				t.Errorf("line %d: %+v", i, a)
			}
		}
		if len(r.sent) != 2 || bytes.Count(r.sent[1].Data, []byte{'\n'}) != 2 || !bytes.Contains(r.sent[1].Data, []byte(`"unknown"`)) {
			t.Errorf("%d messages, the last one %s", len(r.sent), r.sent[len(r.sent)-1].Data)
		}
	})
}
