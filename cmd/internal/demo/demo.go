package demo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Options of a demo. JetStream, Lanes, Do and Suffix are required; the rest has defaults that take half a minute.
type Options struct {
	JetStream jetstream.JetStream
	// Lanes of the log.
	Lanes int
	// Do sends a command and returns its outcome. It must be safe for concurrent use.
	Do func(context.Context, wire.Command) (wire.Outcome, error)
	// PostgresURL is the database with the read tables; "" omits SQL.
	PostgresURL string
	// Suffix makes the campaign names of this run unique.
	Suffix string
	// Progress is called for every phase and every step in it.
	Progress Progress

	// Codes of the sale, and Customers who claim them. Default to 10,000 and 30,000.
	Codes, Customers int
	// Few is how many coupons expire and how many reminders fire. Defaults to 500.
	Few int
	// Watch is how long after the start they do. Defaults to 15 s.
	Watch time.Duration
	// Patience is how long due work may take to appear in the log and in SQL. Defaults to 20 s.
	Patience time.Duration
	// Callers is how many requests are in flight at once. Defaults to 512.
	Callers int
	// Now is the clock. Defaults to time.Now.
	Now func() time.Time
}

// Progress shows the progress of a demo.
type Progress interface {
	// Phase begins a phase of so many steps; 0 = unknown.
	Phase(name string, steps int)
	// Step ends one step; it must be safe for concurrent use.
	Step()
	// End ends the last phase.
	End()
}

func (o Options) withDefaults() Options {
	if o.Codes == 0 {
		o.Codes = 10_000
	}
	if o.Customers == 0 {
		o.Customers = 3 * o.Codes
	}
	if o.Few == 0 {
		o.Few = 500
	}
	if o.Watch == 0 {
		o.Watch = 15 * time.Second
	}
	if o.Patience == 0 {
		o.Patience = 20 * time.Second
	}
	if o.Callers == 0 {
		o.Callers = 512
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Run runs the sale and returns the results of the checks. An error means that it could not be completed.
func Run(ctx context.Context, opts Options) (*Report, error) {
	d := &show{Options: opts.withDefaults()}
	d.sale, d.brief, d.next = "demo-"+d.Suffix+"-sale", "demo-"+d.Suffix+"-brief", "demo-"+d.Suffix+"-next"
	defer d.Progress.End()

	start, err := markNow(ctx, d.JetStream, d.Lanes)
	if err != nil {
		return nil, err
	}
	for _, phase := range []func(context.Context) error{d.open, d.few, d.claims, d.redemptions} {
		if err := phase(ctx); err != nil {
			return nil, err
		}
	}
	if err := d.watch(ctx, start); err != nil {
		return nil, err
	}
	if err := d.tooLate(ctx); err != nil {
		return nil, err
	}
	l, err := d.settled(ctx, start, func(*folded) bool { return true })
	if err != nil {
		return nil, err
	}
	d.Progress.Phase("comparing with SQL", 0)
	sql := d.readSQL(ctx, l)
	return d.report(l, sql), nil
}

// show is one run of the demo.
type show struct {
	Options
	sale, brief, next string

	due     time.Time // when the brief coupons expire and the reminders fire
	first   []wire.Outcome
	second  []wire.Outcome // of the repeated claims; Status "" = not repeated
	took    time.Duration  // all claims together
	sent    int            // claims
	redeem  redeemed
	briefly []wire.Outcome
	late    map[string]int // answers to redeeming too late
}

// redeemed are the answers to redemptions.
type redeemed struct {
	done, repeats, refused int
	wrong                  []string // unexpected answers
}

// open creates the campaigns.
func (d *show) open(ctx context.Context) error {
	d.Progress.Phase("creating three campaigns", 3)
	now := d.Now().Truncate(time.Millisecond)
	d.due = now.Add(d.Watch)
	sale := wire.DefaultSettings(uint32(d.Codes))
	sale.Prefix, sale.Category, sale.Benefit = "FLASH", "demo", []byte(`{"percent":20}`)
	brief := wire.DefaultSettings(uint32(d.Few))
	brief.Category, brief.ExpiresAt = "demo", wire.At(d.due)
	next := wire.DefaultSettings(uint32(d.Few))
	next.Category, next.OpensAt = "demo", wire.At(d.due.Add(reminderBefore))
	return d.each(ctx, 3, func(ctx context.Context, i int) error {
		name := []string{d.sale, d.brief, d.next}[i]
		settings := []wire.Settings{sale, brief, next}[i]
		_, err := d.must(ctx, wire.Command{Type: wire.CreateCampaign, Campaign: name, Patch: wire.PatchOf(settings)}, wire.StatusCreated)
		return err
	})
}

// reminderBefore is how long before the opening the reminders fire.
const reminderBefore = 5 * time.Second

// everyTenth reminder is cancelled.
const everyTenth = 10

// few claims the coupons that will expire and sets the reminders that will fire.
func (d *show) few(ctx context.Context) error {
	d.Progress.Phase("claiming coupons that expire soon, setting reminders", 2*d.Few)
	d.briefly = make([]wire.Outcome, d.Few)
	err := d.each(ctx, d.Few, func(ctx context.Context, i int) (err error) {
		d.briefly[i], err = d.must(ctx, wire.Command{Type: wire.Claim, Campaign: d.brief, CustomerID: customer(i)}, wire.StatusClaimed)
		return err
	})
	if err != nil {
		return err
	}
	return d.each(ctx, d.Few, func(ctx context.Context, i int) error {
		c := wire.Command{Type: wire.Remind, Campaign: d.next, CustomerID: customer(i), Kind: wire.KindOpens, Before: reminderBefore}
		if _, err := d.must(ctx, c, wire.StatusReminderSet); err != nil || i%everyTenth != 0 {
			return err
		}
		c.Type = wire.Unremind
		_, err := d.must(ctx, c, wire.StatusReminderCancelled)
		return err
	})
}

// claims sends the claims of all customers concurrently. Every third customer claims twice, under two ids.
func (d *show) claims(ctx context.Context) error {
	d.sent = d.Customers + (d.Customers+2)/3
	d.Progress.Phase(fmt.Sprintf("%d customers claim %d coupons", d.Customers, d.Codes), d.sent)
	d.first, d.second = make([]wire.Outcome, d.Customers), make([]wire.Outcome, d.Customers)
	begun := d.Now()
	err := d.each(ctx, d.Customers, func(ctx context.Context, i int) (err error) {
		c := wire.Command{Type: wire.Claim, Campaign: d.sale, CustomerID: customer(i), Attributes: []byte(`{"channel":"demo"}`)}
		if d.first[i], err = d.Do(ctx, c); err != nil || i%3 != 0 {
			return err
		}
		d.Progress.Step()
		d.second[i], err = d.Do(ctx, c)
		return err
	})
	d.took = d.Now().Sub(begun)
	return err
}

// redemptions redeems four of ten coupons, a part of them twice: for the same order, and for another.
func (d *show) redemptions(ctx context.Context) error {
	var codes []string
	for _, o := range d.first {
		if o.Status == wire.StatusClaimed && len(codes) < d.Codes*4/10 {
			codes = append(codes, o.Code)
		}
	}
	d.Progress.Phase("redeeming "+strconv.Itoa(len(codes))+" of them, some twice", len(codes))
	answers := make([][3]wire.Outcome, len(codes))
	err := d.each(ctx, len(codes), func(ctx context.Context, i int) (err error) {
		c := wire.Command{Type: wire.Redeem, Code: codes[i], OrderID: "order-" + strconv.Itoa(i)}
		if answers[i][0], err = d.Do(ctx, c); err != nil {
			return err
		}
		switch i % 8 {
		case 0:
			answers[i][1], err = d.Do(ctx, c)
		case 1:
			c.OrderID = "another-" + c.OrderID
			answers[i][2], err = d.Do(ctx, c)
		}
		return err
	})
	if err != nil {
		return err
	}
	wrong := func(what string, o wire.Outcome) {
		d.redeem.wrong = append(d.redeem.wrong, what+" was answered "+o.Status+" "+string(o.Refusal))
	}
	for i, a := range answers {
		if a[0].Status == wire.StatusRedeemed {
			d.redeem.done++
		} else {
			wrong("redeeming "+codes[i], a[0])
		}
		switch {
		case a[1].Status == wire.StatusRedeemed && a[1].Repeat:
			d.redeem.repeats++
		case a[1].Status != "":
			wrong("redeeming "+codes[i]+" again for the same order", a[1])
		}
		switch {
		case a[2].Refusal == wire.AlreadyRedeemed:
			d.redeem.refused++
		case a[2].Status != "":
			wrong("redeeming "+codes[i]+" for another order", a[2])
		}
	}
	return nil
}

// watch waits until the log has the expiry of the brief coupons and the fired reminders, or patience ends: the report shows
// what is missing then.
func (d *show) watch(ctx context.Context, start mark) error {
	d.Progress.Phase("waiting for an expiry and for reminders, due at "+d.due.Format(time.TimeOnly), 0)
	_, err := d.settled(ctx, start, func(l *folded) bool {
		fired := l.byState(d.next)["fired"]
		return l.expiredThrough(d.brief, d.due) && fired == d.remindersKept() && len(l.published[d.next]) >= fired
	})
	return err
}

// remindersKept is how many reminders were not cancelled.
func (d *show) remindersKept() int { return d.Few - (d.Few+everyTenth-1)/everyTenth }

// settled reads the log until it is done or patience ends.
func (d *show) settled(ctx context.Context, start mark, done func(*folded) bool) (*folded, error) {
	l := newFolded(d.sale, d.brief, d.next)
	from := start
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		until, err := markNow(ctx, d.JetStream, d.Lanes)
		if err != nil {
			return nil, err
		}
		if err := l.read(ctx, d.JetStream, from, until); err != nil {
			return nil, err
		}
		from = until
		if done(l) || d.Now().After(d.due.Add(d.Patience)) {
			return l, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// tooLate tries to redeem coupons that have expired.
func (d *show) tooLate(ctx context.Context) error {
	n := min(100, d.Few)
	d.Progress.Phase("redeeming coupons that have expired", n)
	answers := make([]wire.Outcome, n)
	err := d.each(ctx, n, func(ctx context.Context, i int) (err error) {
		answers[i], err = d.Do(ctx, wire.Command{Type: wire.Redeem, Code: d.briefly[i].Code, OrderID: "late-" + strconv.Itoa(i)})
		return err
	})
	d.late = map[string]int{}
	for _, o := range answers {
		d.late[strings.TrimSpace(o.Status+" "+string(o.Refusal))]++
	}
	return err
}

func customer(i int) string { return "customer-" + strconv.Itoa(i) }

// must sends a command that may not be refused here.
func (d *show) must(ctx context.Context, c wire.Command, want string) (wire.Outcome, error) {
	o, err := d.Do(ctx, c)
	if err == nil && o.Status != want {
		err = fmt.Errorf("%s of %s was answered %s %s: %s", c.Type, c.Campaign, o.Status, o.Refusal, o.Message)
	}
	return o, err
}

// each does f for 0 to n-1, Callers at once, and stops at the first error.
func (d *show) each(ctx context.Context, n int, f func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	callers := min(d.Callers, n)
	done := make(chan struct{})
	for range callers {
		go func() {
			defer func() { done <- struct{}{} }()
			for i := range next {
				if err := f(ctx, i); err != nil {
					cancel(err)
					return
				}
				d.Progress.Step()
			}
		}()
	}
feed:
	for i := range n {
		select {
		case next <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	for range callers {
		<-done
	}
	if err := context.Cause(ctx); err != nil {
		return errors.Join(err)
	}
	return nil
}
