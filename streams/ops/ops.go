package ops

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/once"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/webhook"
)

// Caller is who requests an action, and how.
type Caller = access.Author

// Ops are the parts that actions work with.
type Ops struct {
	Keys     *access.Store
	Settings *settings.Store
	Webhooks *webhook.Store
	Audit    *audit.Log
	// Once remembers requests, and tokens that work once.
	Once *once.Store
	// Queries looks campaigns up.
	Queries *client.Client
	// Status reads the status of the log and its servers, whose type is of a package above this one.
	Status func(context.Context) (any, error)
	// JetStream reads streams of the log, which is Log.
	JetStream jetstream.JetStream
	Log       topology.Log
	// Overview is what is to be seen at a glance, likewise. Nil = this server takes no samples.
	Overview func() any
	// PostgresURL is where a key reads the read tables, without its password; "" = it may not, or not here. nil = nowhere.
	PostgresURL func(*access.Key) string
	// Jobs are the long actions.
	Jobs *Jobs
	// Cursors seals the ends of pages.
	Cursors Cursors
	// Lanes send commands that an action consists of.
	Lanes *command.Lanes
	// Wrong counts codes that were tried.
	Wrong *access.WrongCodes
	// Coupons are the coupons in the read tables. Nil = this server has no read tables.
	Coupons Coupons
	// Letters are the dead letters in the read tables. Nil = this server has no read tables.
	Letters Letters
	// Changes are the histories of campaigns in the read tables. Nil likewise.
	Changes Changes
	// Reminders are those in the read tables. Nil likewise.
	Reminders Reminders
	// MaskCustomer is the mask of a customer's id, the same as in events and tables.
	MaskCustomer func(id string) string

	searches turns // of FindCommand
	lists    turns // of those that no index serves
}

// record adds an entry to the audit stream. An action without its entry is not answered as done.
func (o *Ops) record(ctx context.Context, who Caller, kind audit.Kind, action, about string) error {
	return o.Audit.Append(ctx, who.Entry(kind, action, about))
}

// None is a request without fields.
type None struct{}

// ShowStatus reads the status of the log and its servers.
func (o *Ops) ShowStatus(ctx context.Context, _ Caller, _ None) (any, error) {
	return o.Status(ctx)
}

// ShowOverview returns the last sample of the log and the alerts that would fire.
func (o *Ops) ShowOverview(context.Context, Caller, None) (any, error) {
	if o.Overview == nil {
		return nil, &Refusal{Code: Unavailable, Message: "this server takes no samples"}
	}
	return o.Overview(), nil
}
