package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/check"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// mostProblems bounds what a ledger keeps: one fault can spoil every answer after it.
const mostProblems = 20

// Ledger records the answers that clients got, to compare them with the log. It is safe for concurrent use.
type Ledger struct {
	// Faults is set where calls may end without an answer, see Unanswered. These are counted, and nothing else.
	Faults bool

	mu       sync.Mutex
	claims   map[string]string // campaign/customer → code
	redeemed map[string]string // code → order
	answers  int
	unknown  int
	problems []string
	target   int
	reached  chan struct{}
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger { return &Ledger{claims: map[string]string{}, redeemed: map[string]string{}} }

// After returns a channel that is closed after n more answers. Only one caller may wait at a time.
func (l *Ledger) After(n int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target, l.reached = l.answers+n, make(chan struct{})
	return l.reached
}

// Note records one answer. An error or a refusal is a problem; the caller omits those that it accepts. It returns true
// if there was no problem.
func (l *Ledger) Note(what string, out wire.Outcome, err error) bool {
	return l.note(what, out, err, func() string { return "" })
}

// Claimed records the answer to a claim. The same claim must have the same code every time.
func (l *Ledger) Claimed(campaign, customer string, out wire.Outcome, err error) bool {
	key := campaign + "/" + customer
	return l.note("claim of "+key, out, err, func() string {
		before, known := l.claims[key]
		l.claims[key] = out.Code
		if known && before != out.Code {
			return fmt.Sprintf("answered %s, then %s", before, out.Code)
		}
		return ""
	})
}

// Redeemed records the answer to a redemption of a code for an order.
func (l *Ledger) Redeemed(code, order string, out wire.Outcome, err error) bool {
	return l.note("redemption of "+code+" for "+order, out, err, func() string { l.redeemed[code] = order; return "" })
}

func (l *Ledger) note(what string, out wire.Outcome, err error, keep func() (problem string)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Faults && Unanswered(out, err) {
		l.unknown++
		return false
	}
	problem := ""
	switch {
	case err != nil:
		problem = err.Error()
	case out.Refused():
		problem = fmt.Sprintf("refused: %s %s", out.Refusal, out.Message)
	default:
		problem = keep()
	}
	if problem != "" && len(l.problems) < mostProblems {
		l.problems = append(l.problems, what+": "+problem)
	}
	if l.answers++; l.reached != nil && l.answers >= l.target {
		close(l.reached)
		l.reached = nil
	}
	return problem == ""
}

// Unanswered is true if a call ended without an answer, or with "not durable": its result is not known then.
func Unanswered(out wire.Outcome, err error) bool {
	var unknown *client.UnknownError
	var notSent *client.NotSentError
	return errors.Is(err, context.Canceled) || errors.As(err, &unknown) || errors.As(err, &notSent) || out.Refusal == wire.NotDurable
}

// Redeem redeems a coupon for an order of its customer, and records the answer.
func (l *Ledger) Redeem(ctx context.Context, sdk *client.Client, code, customer string) bool {
	order := "order-of-" + customer
	out, err := sdk.Redeem(ctx, code, order)
	return l.Redeemed(code, order, out, err)
}

// Answers is a copy of the claims (campaign/customer → code) and redemptions (code → order) that were answered so far.
func (l *Ledger) Answers() (claims, redeemed map[string]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.claims), maps.Clone(l.redeemed)
}

// Report fails the test for each problem.
func (l *Ledger) Report(t testing.TB) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.problems {
		t.Error(p)
	}
}

// Settle reports all problems and compares all answers with a log. It returns how many answers the log lacks.
func (l *Ledger) Settle(t testing.TB, fold *check.Fold) (missing int) {
	t.Helper()
	l.Report(t)
	claims, redeemed := l.Answers()
	gone := Missing(fold, claims, redeemed)
	t.Logf("%d claims and %d redemptions were answered, %d calls were not; the log lacks %d answers", len(claims), len(redeemed), l.unknown, len(gone))
	if len(claims) == 0 {
		t.Error("no claim was answered")
	}
	for _, what := range gone[:min(len(gone), mostProblems)] {
		t.Error(what)
	}
	return len(gone)
}

// Missing describes the answered claims and redemptions that a log lacks or has differently.
func Missing(fold *check.Fold, claims, redeemed map[string]string) (gone []string) {
	holders, uses := map[string]string{}, map[string]string{}
	for name, campaign := range fold.Campaigns {
		for _, k := range campaign.Coupons {
			holders[k.Code] = name + "/" + k.Customer
			for _, r := range k.Redemptions {
				uses[k.Code] = r.Order
			}
		}
	}
	for key, code := range claims {
		if holders[code] != key {
			gone = append(gone, fmt.Sprintf("%s was answered %s, whose holder in the log is %q", key, code, holders[code]))
		}
	}
	for code, order := range redeemed {
		if uses[code] != order {
			gone = append(gone, fmt.Sprintf("%s was answered as redeemed for %s, in the log it is for %q", code, order, uses[code]))
		}
	}
	return gone
}

// Customer is the customer of a worker's i-th claim: with probability 1/5 one with an earlier claim.
func Customer(rng *rand.Rand, worker, i int) string {
	if i > 0 && rng.IntN(5) == 0 {
		i = rng.IntN(i)
	}
	return fmt.Sprintf("w%d-%d", worker, i)
}

// Campaigns are names of campaigns, one on each lane.
func Campaigns(lanes int) []string {
	names := make([]string, lanes)
	for i, left := 0, lanes; left > 0; i++ {
		name := fmt.Sprint("sale-", i)
		if lane := topology.LaneOf(name, lanes); names[lane] == "" {
			names[lane] = name
			left--
		}
	}
	return names
}

// ReadLog folds the log of a server from its first message. It also returns the last sequence of each lane's events.
func ReadLog(ctx context.Context, js jetstream.JetStream) (*check.Fold, []uint64, error) {
	log, found, err := topology.Inspect(ctx, js)
	if err != nil {
		return nil, nil, err
	}
	if !found {
		return nil, nil, errors.New("there is no log")
	}
	return check.Log(ctx, js, log)
}
