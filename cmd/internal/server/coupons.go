package server

import (
	"cmp"
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
	"github.com/seed-4a2410e3/scrip/projections/readmodel"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// Coupons are the coupons of the read tables, for actions of people, and the work of jobs that change many.
type Coupons struct {
	Tables  *readmodel.Coupons
	Queries *client.Client
	Lanes   *command.Lanes
	Wrong   *access.WrongCodes
}

// List implements ops.Coupons.
func (c *Coupons) List(ctx context.Context, q ops.ListCoupons, campaigns []string, masked bool) (page ops.Page[any], err error) {
	var at readmodel.CouponPlace
	if err := placed(q.After, &at); err != nil {
		return page, err
	}
	of := readmodel.CouponFilter{Campaign: q.Campaign, CustomerID: q.CustomerID, OrderID: q.OrderID, Status: q.Status, LastFour: q.LastFour, Campaigns: campaigns}
	list, next, more, err := c.Tables.List(ctx, of, at, q.Limit)
	for i := range list {
		if masked {
			list[i].Code = code.Mask(list[i].Code)
		}
	}
	return pageOf(list, more, next), err
}

// Statistics implements ops.Coupons.
func (c *Coupons) Statistics(ctx context.Context, q ops.CampaignStatistics) (page ops.Page[any], err error) {
	var at readmodel.DayPlace
	if err := placed(q.After, &at); err != nil {
		return page, err
	}
	list, err := c.Tables.Days(ctx, q.Campaign, q.Attribute, at, q.Limit+1)
	if more := len(list) > q.Limit; more {
		list = list[:q.Limit]
		return pageOf(list, more, readmodel.DayPlace{Day: list[q.Limit-1].Day, Value: list[q.Limit-1].Value}), nil
	}
	return pageOf(list, false, nil), err
}

// Due implements ops.Coupons.
func (c *Coupons) Due(ctx context.Context, q ops.Paging) (page ops.DuePage[any, any], err error) {
	var at readmodel.Second
	if err := placed(q.After, &at); err != nil {
		return page, err
	}
	late, err := c.Tables.Backlog(ctx)
	if err != nil {
		return page, err
	}
	list, err := c.Tables.Seconds(ctx, at, q.Limit+1)
	more := len(list) > q.Limit
	if more {
		list = list[:q.Limit]
		at = list[q.Limit-1]
	}
	page.Page, page.Backlog = pageOf(list, more, at), pageOf(late, false, nil).Items
	return page, err
}

// placed reads the place at which the page before ended. Only this server and those like it seal one.
func placed(after string, at any) error {
	if after == "" {
		return nil
	}
	return json.Unmarshal([]byte(after), at)
}

// pageOf is a page of a list, which ended at a place.
func pageOf[T any](list []T, more bool, at any) (page ops.Page[any]) {
	page.Items = []any{}
	for i := range list {
		page.Items = append(page.Items, &list[i])
	}
	if more {
		text, _ := json.Marshal(at) // never fails
		page.Next = string(text)
	}
	return page
}

// lookUps is how many codes of one request are looked up at once.
const lookUps = 32

// Numbers implements ops.Coupons. Each code is in the budget of its caller for wrong ones: a list of codes would else be a way to
// guess them.
func (c *Coupons) Numbers(ctx context.Context, who ops.Caller, campaign string, codes []string) ([]uint32, error) {
	all := make([]uint32, len(codes))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(lookUps)
	for i, text := range codes {
		g.Go(func() error {
			end, wait := c.Wrong.Reserve(who.Principal, netip.Addr{})
			if wait > 0 {
				return &ops.Refusal{Code: "too_many_wrong_codes", Message: fmt.Sprintf("too many wrong codes; wait %s", wait)}
			}
			coupon, err := c.Queries.CouponPage(ctx, text, client.Page{Limit: 1}, client.Campaign(campaign))
			var no *client.RefusedError
			wrong := errors.As(err, &no) && no.Outcome.Refusal == wire.CodeNotFound
			end(wrong)
			if wrong {
				return &ops.Refusal{Code: wire.CodeNotFound, Field: "codes", Message: fmt.Sprintf("codes: number %d names no claimed coupon of %s; nothing was changed", i+1, campaign)}
			}
			all[i] = coupon.N
			return err
		})
	}
	return all, g.Wait()
}

const (
	// scannedRows is how many rows of a campaign are read in one statement.
	scannedRows = 10_000
	// sentAtOnce is how many commands are sent before their outcomes are awaited: a message, so that claims need not wait for more.
	sentAtOnce = wire.MaxMessageLines
	// refusedShown is how many coupons that were not changed are named.
	refusedShown = 20
)

// change is a job that changes many coupons.
type change struct {
	*Coupons
	run ops.JobRun
	couponsRequest
	is progress
}

// couponsRequest is the request of such a job.
type couponsRequest struct {
	ops.SelectCoupons
	Reason    string    `json:"reason"`
	ExpiresAt time.Time `json:"expires_at"`
}

// progress is how far it is: what a run that failed has stored, and the next one goes on from.
type progress struct {
	ops.CouponsChanged
	Through uint32 `json:"through"` // the last coupon that was counted; those that are claimed later are not changed
	After   uint32 `json:"after"`   // the last one that was decided
}

// Change does a job of kind coupons. It counts the coupons that are selected, and sends a command for each. Its id is made of those of
// the job and the coupon: one that a run before this one sent has no second effect. The lanes decide: what the tables do not have
// yet is a repeat or refused there.
func (c *Coupons) Change(ctx context.Context, run ops.JobRun) (any, error) {
	j := &change{Coupons: c, run: run}
	err := json.Unmarshal(run.Request, &j.couponsRequest)
	if err == nil && run.Kept != nil {
		err = json.Unmarshal(run.Kept, &j.is)
	}
	if err == nil && j.is.Through == 0 {
		err = j.count(ctx)
	}
	switch {
	case err != nil:
		return nil, err
	case j.DryRun:
		return j.is.CouponsChanged, nil
	case j.is.Matched > int64(j.Most):
		return nil, ops.TooMany(j.is.Matched, j.Most)
	}
	err = j.pages(ctx, j.is.After, j.is.Through, func(hits []uint32, last uint32) error {
		for chunk := range slices.Chunk(hits, sentAtOnce) {
			if err := j.send(ctx, chunk); err != nil {
				return err
			}
			j.report("changing", j.is.Done+j.is.Repeated+j.refused(), j.is.Matched)
		}
		j.is.After = last
		return nil
	})
	return j.is.CouponsChanged, err
}

// count counts what is selected, and finds the end of it.
func (j *change) count(ctx context.Context) (err error) {
	if len(j.N) > 0 {
		j.is.Matched, j.is.Through = int64(len(j.N)), j.N[len(j.N)-1]
		if j.DryRun {
			j.is.Matched, err = j.Tables.HaveRows(ctx, j.Campaign, j.N)
		}
		return err
	}
	campaign, err := j.Queries.Campaign(ctx, j.Campaign)
	if err != nil {
		return err
	}
	return j.pages(ctx, 0, wire.MaxCodes, func(hits []uint32, last uint32) error {
		j.is.Matched, j.is.Through = j.is.Matched+int64(len(hits)), last
		j.run.Report(ops.JobProgress{Phase: "counting", Done: int64(last), Total: int64(max(last, campaign.Claimed))})
		return nil
	})
}

// pages calls do with the coupons that are selected, in their order, and with the last one that was looked at.
func (j *change) pages(ctx context.Context, after, through uint32, do func(hits []uint32, last uint32) error) error {
	if len(j.N) > 0 {
		from, _ := slices.BinarySearch(j.N, after+1)
		return do(j.N[from:], through)
	}
	of := readmodel.CouponFilter{Campaign: j.Campaign, Status: j.Status, CustomerID: j.CustomerID, ClaimedFrom: j.ClaimedFrom, ClaimedBefore: j.ClaimedBefore}
	for more := true; more && after < through; {
		var hits []uint32
		var err error
		if hits, after, more, err = j.Tables.Hits(ctx, of, after, scannedRows); err != nil {
			return err
		}
		beyond, _ := slices.BinarySearch(hits, through+1)
		if err := do(hits[:beyond], after); err != nil {
			return err
		}
	}
	return nil
}

// send sends a command for each coupon, and waits for all outcomes.
func (j *change) send(ctx context.Context, all []uint32) error {
	type sent struct {
		id     string
		wait   *command.Waiter
		ticket command.Ticket
		err    error
	}
	waiting := make([]sent, len(all))
	for i, n := range all {
		cmd := wire.Command{Type: wire.Void, ID: fmt.Sprintf("%s-%d", j.run.ID, n), Campaign: j.Campaign, N: n, Reason: j.Reason}
		if j.run.Action == "coupons.extend" {
			cmd.Type, cmd.ExpiresAt = wire.Extend, wire.At(j.ExpiresAt)
		}
		s := sent{id: cmd.ID, wait: command.NewWaiter()}
		s.ticket, s.err = j.Lanes.Send(ctx, &cmd, command.Call{By: j.run.By, To: s.wait})
		waiting[i] = s
	}
	var failed error
	is := j.is
	if is.Refused = maps.Clone(is.Refused); is.Refused == nil {
		is.Refused = map[wire.Refusal]int64{}
	}
	for i, s := range waiting {
		out, err := s.wait.Wait(ctx, s.id, s.ticket, s.err)
		switch {
		case err != nil:
			failed = cmp.Or(failed, err)
		case out.Refusal == wire.NotDurable:
			failed = cmp.Or(failed, errors.New(out.Message))
		case out.Refused():
			if is.Refused[out.Refusal]++; len(is.First) < refusedShown {
				is.First = append(is.First, ops.RefusedCoupon{N: all[i], Refusal: out.Refusal, Message: out.Message})
			}
		case out.Repeat:
			is.Repeated++
		default:
			is.Done++
		}
	}
	if failed != nil {
		return fmt.Errorf("%w; send the same request again to go on", failed)
	}
	is.After = all[len(all)-1]
	j.is = is
	return nil
}

// refused is how many coupons were not changed.
func (j *change) refused() (n int64) {
	for _, of := range j.is.Refused {
		n += of
	}
	return n
}

// report stores how far the job is.
func (j *change) report(phase string, done, total int64) {
	kept, _ := json.Marshal(&j.is) // never fails
	j.run.Report(ops.JobProgress{Phase: phase, Done: done, Total: total, Kept: kept})
}
