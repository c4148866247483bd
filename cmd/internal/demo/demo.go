package demo

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// Options of a demo. All but PostgresURL are required.
type Options struct {
	// Do sends a command and returns its outcome. It must be safe for concurrent use.
	Do func(context.Context, wire.Command) (wire.Outcome, error)
	// PostgresURL is the database with the read tables; "" omits SQL.
	PostgresURL string
	// Suffix makes the campaign names of this run unique.
	Suffix string
	// Phase shows the progress. It is called for each phase with its steps, 0 = unknown, and returns what is called after
	// each of them, concurrently.
	Phase func(name string, steps int) (step func())
	// Codes of the sale, and Customers who claim them; more than codes.
	Codes, Customers int
	// Now is the clock.
	Now func() time.Time
}

const (
	// mostFew bounds how many coupons expire and how many reminders fire.
	mostFew = 500
	// everyTenth reminder is cancelled.
	everyTenth = 10
	// soon is when coupons expire and reminders fire, after the start.
	soon = 6 * time.Second
	// reminderBefore is how long before the opening the reminders fire.
	reminderBefore = 5 * time.Second
	// patience is how long due work may take to appear in SQL.
	patience = 20 * time.Second
	// callers is how many requests are in flight at once.
	callers = 512
)

// sale is one run of the demo.
type sale struct {
	Options
	sale, brief, next string // campaigns
	few               int
	due               time.Time      // when the brief coupons expire and the reminders fire
	first             []wire.Outcome // of the claims in the sale, by customer
	briefly           []wire.Outcome // of those that expire
	claims            int            // all of them
	took              time.Duration  // of them together
	redeemed          int            // coupons to redeem

	mu      sync.Mutex // guards the fields below
	answers counts
	wrong   []string // unexpected answers
}

// Run runs the sale and returns the results of the checks. An error means that it could not be completed.
func Run(ctx context.Context, opts Options) (*Report, error) {
	name := "demo-" + opts.Suffix
	d := &sale{Options: opts, sale: name + "-sale", brief: name + "-brief", next: name + "-next", few: min(mostFew, opts.Codes), answers: counts{}}
	for _, phase := range []func(context.Context) error{d.open, d.prepare, d.claim, d.redeem, d.tooLate} {
		if err := phase(ctx); err != nil {
			return nil, err
		}
	}
	d.Phase("comparing with SQL", 0)
	tables, missing := d.query(ctx)
	return d.report(tables, missing), nil
}

// open creates the campaigns.
func (d *sale) open(ctx context.Context) error {
	d.due = d.Now().Truncate(time.Millisecond).Add(soon)
	few := wire.DefaultSettings(uint32(d.few))
	sale, brief, next := wire.DefaultSettings(uint32(d.Codes)), few, few
	sale.Prefix, sale.Benefit = "FLASH", []byte(`{"percent":20}`)
	brief.ExpiresAt, next.OpensAt = wire.At(d.due), wire.At(d.due.Add(reminderBefore))
	return d.each(ctx, "creating three campaigns", 3, func(ctx context.Context, i int) error {
		name, settings := []string{d.sale, d.brief, d.next}[i], []wire.Settings{sale, brief, next}[i]
		_, err := d.must(ctx, wire.Command{Type: wire.CreateCampaign, Campaign: name, Patch: wire.PatchOf(settings)}, wire.StatusCreated)
		return err
	})
}

// prepare claims the coupons that will expire and sets the reminders that will fire; some are cancelled.
func (d *sale) prepare(ctx context.Context) error {
	d.briefly = make([]wire.Outcome, d.few)
	return d.each(ctx, "claiming coupons that expire soon, setting reminders", d.few, func(ctx context.Context, i int) (err error) {
		if d.briefly[i], err = d.must(ctx, wire.Command{Type: wire.Claim, Campaign: d.brief, CustomerID: customer(i)}, wire.StatusClaimed); err != nil {
			return err
		}
		c := wire.Command{Type: wire.Remind, Campaign: d.next, CustomerID: customer(i), Kind: wire.KindOpens, Before: reminderBefore}
		if _, err := d.must(ctx, c, wire.StatusReminderSet); err != nil || i%everyTenth != 0 {
			return err
		}
		c.Type = wire.Unremind
		_, err = d.must(ctx, c, wire.StatusReminderCancelled)
		return err
	})
}

// claim sends the claims of all customers concurrently. Every third customer claims twice, under two ids.
func (d *sale) claim(ctx context.Context) error {
	d.claims, d.first = d.Customers+share(d.Customers, 3), make([]wire.Outcome, d.Customers)
	start := d.Now()
	err := d.each(ctx, fmt.Sprintf("%d customers claim %d coupons", d.Customers, d.Codes), d.Customers, func(ctx context.Context, i int) (err error) {
		c := wire.Command{Type: wire.Claim, Campaign: d.sale, CustomerID: customer(i), Attributes: []byte(`{"channel":"demo"}`)}
		if d.first[i], err = d.Do(ctx, c); err != nil || i%3 != 0 {
			return err
		}
		return d.try(ctx, c, repeated, func(again wire.Outcome) bool {
			// A refused customer may not get a coupon later: no coupon ever returns to a campaign.
			return again.Status == d.first[i].Status && again.Code == d.first[i].Code && (again.Refused() || again.Repeat)
		})
	})
	d.took = d.Now().Sub(start)
	codes := map[string]bool{}
	for _, o := range d.first {
		switch {
		case o.Status == wire.StatusClaimed:
			d.answers[claimed]++
			codes[o.Code] = true
		case o.Refusal == wire.SoldOut:
			d.answers[soldOut]++
		}
	}
	d.answers[distinct] = len(codes)
	return err
}

// redeem redeems four of ten coupons, a part of them again for another order.
func (d *sale) redeem(ctx context.Context) error {
	d.redeemed = d.Codes * 4 / 10
	var codes []string
	for _, o := range d.first {
		if o.Status == wire.StatusClaimed && len(codes) < d.redeemed {
			codes = append(codes, o.Code)
		}
	}
	return d.each(ctx, fmt.Sprintf("redeeming %d of them, some twice", len(codes)), len(codes), func(ctx context.Context, i int) error {
		c := wire.Command{Type: wire.Redeem, Code: codes[i], OrderID: "order-" + strconv.Itoa(i)}
		err := d.try(ctx, c, redeemed, func(o wire.Outcome) bool { return o.Status == wire.StatusRedeemed })
		if err != nil || i%8 != 0 {
			return err
		}
		c.OrderID = "another-" + c.OrderID
		return d.try(ctx, c, tooOften, func(o wire.Outcome) bool { return o.Refusal == wire.AlreadyRedeemed })
	})
}

// tooLate waits until coupons have expired, and tries to redeem them.
func (d *sale) tooLate(ctx context.Context) error {
	d.Phase("waiting for an expiry and for reminders, due at "+d.due.Format(time.TimeOnly), 0)
	if err := natsx.Pause(ctx, d.due.Sub(d.Now())); err != nil {
		return err
	}
	return d.each(ctx, "redeeming coupons that have expired", share(d.few, 5), func(ctx context.Context, i int) error {
		c := wire.Command{Type: wire.Redeem, Code: d.briefly[i].Code, OrderID: "late-" + strconv.Itoa(i)}
		return d.try(ctx, c, tooLate, func(o wire.Outcome) bool { return o.Refusal == wire.Expired })
	})
}

func customer(i int) string { return "customer-" + strconv.Itoa(i) }

// share is how many of n there are if every so-manieth is taken, the first included.
func share(n, every int) int { return (n + every - 1) / every }

// must sends a command that may not be refused here.
func (d *sale) must(ctx context.Context, c wire.Command, want string) (wire.Outcome, error) {
	o, err := d.Do(ctx, c)
	if err == nil && o.Status != want {
		err = fmt.Errorf("%s of %s was answered %s %s: %s", c.Type, c.Campaign, o.Status, o.Refusal, o.Message)
	}
	return o, err
}

// try sends a command and counts its answer if it keeps the promise.
func (d *sale) try(ctx context.Context, c wire.Command, promise string, kept func(wire.Outcome) bool) error {
	o, err := d.Do(ctx, c)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err != nil:
		return err
	case kept(o):
		d.answers[promise]++
	default:
		d.wrong = append(d.wrong, fmt.Sprintf("%s: %s %s%s was answered %s %s", promise, c.Type, c.Code, c.CustomerID, o.Status, o.Refusal))
	}
	return nil
}

// each does f for 0 to n-1 as one phase, some at once, and stops at the first error.
func (d *sale) each(ctx context.Context, phase string, n int, f func(context.Context, int) error) error {
	step := d.Phase(phase, n)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(callers)
	for i := range n {
		g.Go(func() error {
			defer step()
			return f(ctx, i)
		})
	}
	return g.Wait()
}
