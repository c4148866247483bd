package ops

import (
	"context"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/optout"
)

// OptOutOf names a customer who wants no reminders, or is asked about.
type OptOutOf struct {
	CustomerID string `json:"customer_id" maxLength:"128" doc:"The customer's id."`
}

func (o OptOutOf) check() error {
	if o.CustomerID == "" || len(o.CustomerID) > wire.MaxCustomerID || !wire.Printable(o.CustomerID) {
		return invalid("customer_id", "must be 1 to 128 bytes of printable UTF-8")
	}
	return nil
}

// AddOptOut is a customer who wants no reminders.
type AddOptOut struct {
	OptOutOf
	Reason string `json:"reason,omitempty" maxLength:"256" doc:"Why, or from where."`
}

// OptOutShown is whether a customer wants no reminders.
type OptOutShown struct {
	optout.Entry
	OptedOut bool `json:"opted_out"`
}

// AddOptOut adds a customer to the list of those who want no reminders, or finds the entry that there is.
func (o *Ops) AddOptOut(ctx context.Context, who Caller, q AddOptOut) (shown OptOutShown, err error) {
	if err := q.check(); err != nil {
		return shown, err
	}
	e := optout.Entry{CustomerID: q.CustomerID, At: time.Now().UTC(), By: who.By(), Reason: q.Reason}
	if e, err = optout.NewStore(o.JetStream).Add(ctx, e); err != nil {
		return shown, err
	}
	return OptOutShown{e, true}, o.recordOptOut(ctx, who, "add", q.CustomerID)
}

// RemoveOptOut lets a customer get reminders again.
func (o *Ops) RemoveOptOut(ctx context.Context, who Caller, q OptOutOf) (shown OptOutShown, err error) {
	if err := q.check(); err != nil {
		return shown, err
	}
	if err := optout.NewStore(o.JetStream).Remove(ctx, q.CustomerID); err != nil {
		return shown, err
	}
	shown.CustomerID = q.CustomerID
	return shown, o.recordOptOut(ctx, who, "remove", q.CustomerID)
}

// ShowOptOut shows whether a customer wants no reminders.
func (o *Ops) ShowOptOut(ctx context.Context, _ Caller, q OptOutOf) (shown OptOutShown, err error) {
	if err := q.check(); err != nil {
		return shown, err
	}
	shown.Entry, shown.OptedOut, err = optout.NewStore(o.JetStream).Get(ctx, q.CustomerID)
	shown.CustomerID = q.CustomerID
	return shown, err
}

// recordOptOut records what a person did. Those of programs are many, and the list has them.
func (o *Ops) recordOptOut(ctx context.Context, who Caller, action, customer string) error {
	if !who.Person() {
		return nil
	}
	return o.record(ctx, who, audit.OptOuts, action, customer)
}
