package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	mostNumbers = 10_000 // in a request
	mostCodes   = 1000
	// lookUps is how many of the codes are looked up at once.
	lookUps = 32
	// scannedRows is how many rows of a campaign are read in one statement.
	scannedRows = 10_000
	// sentAtOnce is how many commands are sent before their outcomes are awaited: a message, so that claims need not wait for more.
	sentAtOnce = wire.MaxMessageLines
	// batchWait is how long their outcomes may take: while their lane is away, and so until a stop is looked at again.
	batchWait = 30 * time.Second
	// refusedShown is how many coupons that were not changed are named.
	refusedShown = 20
	// tablesWait is how long a change waits for the tables, and tablesLook how often it looks at them.
	tablesWait = time.Minute
	tablesLook = 200 * time.Millisecond
)

// CouponFilter selects coupons of a campaign. The zero value selects all that are claimed, whatever became of them.
type CouponFilter struct {
	Status        string    `json:"status,omitempty" enum:"claimed,redeemed,expired,voided" doc:"Those in this state."`
	CustomerID    string    `json:"customer_id,omitempty" maxLength:"128" doc:"Those that the customer holds."`
	ClaimedFrom   time.Time `json:"claimed_from,omitzero" doc:"Those that were claimed at this time or later."`
	ClaimedBefore time.Time `json:"claimed_before,omitzero" doc:"Those that were claimed before this time."`
}

// SelectCoupons selects coupons of a campaign for a change: by a list of numbers, a list of codes, or a filter.
type SelectCoupons struct {
	Campaign string   `json:"campaign" doc:"Its name."`
	N        []uint32 `json:"n,omitempty" nullable:"false" doc:"Numbers of coupons in the campaign, at most 10,000."`
	Codes    []string `json:"codes,omitempty" nullable:"false" doc:"Instead of n: codes as they were typed, at most 1,000."`
	CouponFilter
	All    bool `json:"all,omitempty" doc:"Instead of n, codes and a filter: all claimed coupons of the campaign."`
	DryRun bool `json:"dry_run,omitempty" doc:"Count them, and change nothing."`
	Most   int  `json:"most,omitempty" minimum:"1" maximum:"10000000" doc:"The most coupons to change: if more are selected, nothing is changed. Required without dry_run."`
}

// VoidCoupons is the request of coupons.void.
type VoidCoupons struct {
	SelectCoupons
	Reason string `json:"reason,omitempty" maxLength:"256" doc:"Stored with each event."`
}

// ExtendCoupons is the request of coupons.extend.
type ExtendCoupons struct {
	SelectCoupons
	ExpiresAt time.Time `json:"expires_at" doc:"When they expire, in the future."`
}

// CouponsChanged is the result of coupons.void and coupons.extend.
type CouponsChanged struct {
	Matched  int64                  `json:"matched" doc:"Coupons that are selected."`
	Done     int64                  `json:"done" doc:"Coupons that were changed."`
	Repeated int64                  `json:"repeated" doc:"Coupons that were so already, and those of a run before this one that had stored no answer for them."`
	Refused  map[wire.Refusal]int64 `json:"refused,omitempty" doc:"Coupons that were not changed, by reason."`
	First    []RefusedCoupon        `json:"first_refused,omitempty" doc:"The first of them, at most 20."`
	Behind   *uint64                `json:"behind" doc:"How many event messages the tables lacked after a wait: coupons in them may not be selected. null = not known; 0 also where n or codes name the coupons."`
}

// RefusedCoupon is a coupon that was not changed.
type RefusedCoupon struct {
	N       uint32       `json:"n"`
	Refusal wire.Refusal `json:"refusal"`
	Message string       `json:"message,omitempty"`
}

// VoidCoupons starts to void many coupons.
func (o *Ops) VoidCoupons(ctx context.Context, who Caller, q VoidCoupons) (Job, error) {
	return o.startChange(ctx, who, "coupons.void", &q.SelectCoupons, &q)
}

// ExtendCoupons starts to extend many coupons.
func (o *Ops) ExtendCoupons(ctx context.Context, who Caller, q ExtendCoupons) (Job, error) {
	return o.startChange(ctx, who, "coupons.extend", &q.SelectCoupons, &q)
}

// startChange starts a job whose request has q, with numbers instead of codes: no code is stored.
func (o *Ops) startChange(ctx context.Context, who Caller, action string, q *SelectCoupons, request any) (Job, error) {
	if err := q.check(); err != nil {
		return Job{}, err
	}
	if _, err := o.Queries.Campaign(ctx, q.Campaign); err != nil {
		return Job{}, found(err)
	}
	if len(q.Codes) > 0 {
		n, err := o.numbers(ctx, who, q.Campaign, q.Codes)
		if err != nil {
			return Job{}, err
		}
		q.N, q.Codes = n, nil
	}
	slices.Sort(q.N)
	if q.N = slices.Compact(q.N); !q.DryRun && len(q.N) > q.Most {
		return Job{}, tooMany(int64(len(q.N)), q.Most)
	}
	return o.Jobs.Start(ctx, who, action, request)
}

func tooMany(matched int64, most int) *Refusal {
	return invalid("most", fmt.Sprintf("%d coupons are selected, more than %d; nothing was changed", matched, most))
}

// check refuses a selection that names coupons in no way or in several.
func (q *SelectCoupons) check() error {
	ways := 0
	for _, given := range []bool{len(q.N) > 0, len(q.Codes) > 0, q.CouponFilter != CouponFilter{}, q.All} {
		if given {
			ways++
		}
	}
	masked := slices.IndexFunc(q.Codes, code.Masked)
	switch {
	case ways != 1:
		return &Refusal{Code: wire.Invalid, Field: "n", Message: "give one of n, codes, a filter (status, customer_id, claimed_from, claimed_before) and all"}
	case len(q.N) > mostNumbers:
		return invalid("n", "are more than 10,000")
	case slices.ContainsFunc(q.N, func(n uint32) bool { return n < 1 || n > wire.MaxCodes }):
		return invalid("n", "must be whole numbers from 1 to 1,000,000,000")
	case len(q.Codes) > mostCodes:
		return invalid("codes", "are more than 1,000")
	case masked >= 0:
		return invalid("codes", fmt.Sprintf("number %d has stars: a masked code names no coupon; give n", masked+1))
	case !q.DryRun && q.Most == 0:
		return invalid("most", "missing: the most coupons to change; a dry run counts them")
	}
	return nil
}

// numbers finds the coupons of a campaign by their codes. Each is in the budget of its caller for wrong ones: a list of codes would
// else be a way to guess them.
func (o *Ops) numbers(ctx context.Context, who Caller, campaign string, codes []string) ([]uint32, error) {
	all := make([]uint32, len(codes))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(lookUps)
	for i, text := range codes {
		g.Go(func() error {
			end, wait := o.Wrong.Reserve(who.Principal, netip.Addr{})
			if wait > 0 {
				return &Refusal{Code: "too_many_wrong_codes", Message: fmt.Sprintf("too many wrong codes; wait %s", wait)}
			}
			coupon, err := o.Queries.Coupon(ctx, text, client.Campaign(campaign))
			var no *client.RefusedError
			wrong := errors.As(err, &no) && no.Outcome.Refusal == wire.CodeNotFound
			if end(wrong); wrong {
				return &Refusal{Code: wire.CodeNotFound, Field: "codes", Message: fmt.Sprintf("codes: number %d names no claimed coupon of %s; nothing was changed", i+1, campaign)}
			}
			all[i] = coupon.N
			return err
		})
	}
	return all, g.Wait()
}

// change is a job that changes many coupons.
type change struct {
	*Ops
	run  JobRun
	wait time.Duration // for a batch
	q    struct {
		SelectCoupons
		Reason    string    `json:"reason"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	// is how far it is: what a run that failed has stored, and the next one goes on from.
	is struct {
		CouponsChanged
		Through uint32 `json:"through"` // the last coupon that was counted; those that are claimed later are not changed
		After   uint32 `json:"after"`   // the last one that was decided
	}
}

// ChangeCoupons does a job of kind coupons. It waits until the tables have what the log has, counts the coupons that are selected, and
// sends a command for each. Its id is made of those of the job and the coupon: one that a run before this one sent has no second
// effect. The lanes decide: what the tables do not have yet is a repeat or refused there. A stop ends it between two batches of
// commands, so that what it has counted is all that it did. A batch without answers in time is not counted: the error names its coupons.
func (o *Ops) ChangeCoupons(ctx context.Context, run JobRun) (any, error) {
	j := &change{Ops: o, run: run, wait: batchWait}
	err := json.Unmarshal(run.Request, &j.q)
	if err == nil && run.Kept != nil {
		err = json.Unmarshal(run.Kept, &j.is)
	}
	if err == nil && j.is.Through == 0 {
		if err = j.await(ctx); err == nil {
			err = j.count(ctx)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case j.q.DryRun:
		return j.is.CouponsChanged, nil
	case j.is.Matched > int64(j.q.Most):
		return nil, tooMany(j.is.Matched, j.q.Most)
	}
	var sent int64
	err = j.pages(ctx, j.is.After, j.is.Through, func(hits []uint32, last uint32) error {
		for chunk := range slices.Chunk(hits, sentAtOnce) {
			if run.stopped() {
				return errStopped
			}
			if err := j.batch(ctx, chunk); err != nil {
				return err
			}
			sent += int64(len(chunk))
			kept, _ := json.Marshal(&j.is) // never fails
			run.Report(JobProgress{Phase: "changing", Done: sent, Total: j.is.Matched, Kept: kept})
		}
		j.is.After = last
		return nil
	})
	return j.is.CouponsChanged, err
}

// await waits, for a bounded time, until the tables have the events that the log has now, and records how many they lack. Coupons
// that are named by number are changed whether the tables have them or not.
func (j *change) await(ctx context.Context) error {
	if len(j.q.N) > 0 && !j.q.DryRun {
		j.is.Behind = new(uint64)
		return nil
	}
	lane := topology.LaneOf(j.q.Campaign, j.Log.Lanes)
	bounds, err := eventlog.Events(j.JetStream, lane).Bounds(ctx)
	if err != nil {
		return err
	}
	j.is.Behind, err = reaches(ctx, j.Coupons, lane, bounds.Last, &j.run)
	return err
}

// reaches waits until the tables have the messages of a lane up to its end, and returns how many they lack then; nil = not known.
func reaches(ctx context.Context, tables Coupons, lane int, end uint64, run *JobRun) (behind *uint64, err error) {
	tick := time.NewTicker(tablesLook)
	defer tick.Stop()
	late := time.NewTimer(tablesWait)
	defer late.Stop()
	for {
		at, ok, err := tables.Checkpoint(ctx, lane)
		if err != nil {
			return nil, err
		}
		if behind = nil; ok || end == 0 {
			lacks := end - min(at, end)
			behind = &lacks
		}
		if behind != nil && *behind == 0 {
			return behind, nil
		}
		run.Report(JobProgress{Phase: "waiting for the tables", Done: int64(min(at, end)), Total: int64(end)})
		select {
		case <-tick.C:
		case <-late.C:
			return behind, nil
		case <-run.Stop:
			return nil, errStopped
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// count counts what is selected, and finds the end of it.
func (j *change) count(ctx context.Context) error {
	if n := j.q.N; len(n) > 0 {
		j.is.Matched, j.is.Through = int64(len(n)), n[len(n)-1]
		if !j.q.DryRun {
			return nil
		}
		there, err := j.Coupons.ByNumber(ctx, j.q.Campaign, n...)
		j.is.Matched = int64(len(there))
		return err
	}
	return j.pages(ctx, 0, wire.MaxCodes, func(hits []uint32, last uint32) error {
		if j.run.stopped() {
			return errStopped
		}
		j.is.Matched, j.is.Through = j.is.Matched+int64(len(hits)), last
		j.run.Report(JobProgress{Phase: "counting", Done: int64(last), Total: int64(last)})
		return nil
	})
}

// pages calls do with the coupons that are selected, in their order, and with the last one that was looked at.
func (j *change) pages(ctx context.Context, after, through uint32, do func(hits []uint32, last uint32) error) error {
	if len(j.q.N) > 0 {
		from, _ := slices.BinarySearch(j.q.N, after+1)
		return do(j.q.N[from:], through)
	}
	for more := true; more && after < through; {
		var hits []uint32
		var err error
		if hits, after, more, err = j.Coupons.Hits(ctx, j.q.Campaign, "", j.q.CouponFilter, after, scannedRows); err != nil {
			return err
		}
		beyond, _ := slices.BinarySearch(hits, through+1)
		if err := do(hits[:beyond], after); err != nil {
			return err
		}
	}
	return nil
}

// batch changes coupons. A stop may have been requested while their lane was away: it is looked at after a failure, too.
func (j *change) batch(ctx context.Context, all []uint32) error {
	err := j.send(ctx, all)
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case errors.Is(err, command.ErrDeadline), errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("no answer in %s from the lane of %s", j.wait, j.q.Campaign)
	}
	if j.run.stopped() {
		return fmt.Errorf("%w: %w; what became of coupons %d to %d is not known", errStopped, err, all[0], all[len(all)-1])
	}
	return fmt.Errorf("%w; send the same request again to go on", err)
}

// send sends a command for each coupon, and waits for all outcomes. After an error none of them counts.
func (j *change) send(ctx context.Context, all []uint32) error {
	type answer struct {
		n   uint32
		out wire.Outcome
		err error
	}
	answers := make(chan answer, len(all)) // with room for those that come after an error
	until := time.Now().Add(j.wait)
	for _, n := range all {
		cmd := wire.Command{Type: wire.Void, ID: fmt.Sprintf("%s-%d", j.run.ID, n), Campaign: j.q.Campaign, N: n, Reason: j.q.Reason, RequestID: j.run.RequestID}
		if j.run.Action == "coupons.extend" {
			cmd.Type, cmd.ExpiresAt = wire.Extend, wire.At(j.q.ExpiresAt)
		}
		to := &command.Func{ID: cmd.ID, Do: func(out wire.Outcome, err error) { answers <- answer{n, out, err} }}
		if _, err := j.Lanes.Send(ctx, &cmd, command.Call{By: j.run.By, Deadline: until, To: to}); err != nil {
			return err
		}
	}
	is := j.is
	is.Refused = map[wire.Refusal]int64{}
	maps.Copy(is.Refused, j.is.Refused)
	for range all {
		var a answer
		select {
		case a = <-answers:
		case <-ctx.Done():
			return ctx.Err()
		}
		switch {
		case a.err != nil:
			return a.err
		case a.out.Refusal == wire.NotDurable:
			return errors.New(a.out.Message)
		case a.out.Refused():
			if is.Refused[a.out.Refusal]++; len(is.First) < refusedShown {
				is.First = append(is.First, RefusedCoupon{N: a.n, Refusal: a.out.Refusal, Message: a.out.Message})
			}
		case a.out.Repeat:
			is.Repeated++
		default:
			is.Done++
		}
	}
	is.After = all[len(all)-1]
	j.is = is
	return nil
}
