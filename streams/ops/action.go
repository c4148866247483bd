package ops

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/once"
)

// Action is a row of the table of actions.
type Action struct {
	// Name is that of the endpoint of the micro service without "scrip.", and of the request of the command line.
	Name string
	// Operation is what its caller must be allowed to do. If that is about one campaign, the field campaign names it.
	Operation access.Operation
	// Fields are those of the request.
	Fields []Field
	// Reads: it changes nothing, and has no use for an id.
	Reads bool
	// Most is how many bytes a request may have.
	Most int
	// Request and Answer are their types. An Answer of kind interface is of a package above this one.
	Request, Answer reflect.Type

	call func(o *Ops, ctx context.Context, who Caller, fields Fields) (any, error)
	// repeatable: what was cut off may be done again under the same who.Once.
	repeatable bool
}

// Actions are all actions of people.
var Actions = []Action{
	action("access.create", (*Ops).CreateKey),
	action("access.list", (*Ops).ListKeys).reads(),
	action("access.show", (*Ops).ShowKey).reads(),
	action("access.revoke", (*Ops).RevokeKey),
	action("access.rotate", (*Ops).RotateKey),
	action("config.get", (*Ops).GetSettings).reads(),
	action("config.set", (*Ops).SetSettings),
	action("config.changes", (*Ops).ListChanges).reads(),
	action("audit.list", (*Ops).ListAudit).reads(),
	action("codes.export", (*Ops).RecordExport).reads(),
	action("status.show", (*Ops).ShowStatus).reads(),
	action("command.show", (*Ops).FindCommand).reads(),
	action("log.show", (*Ops).ShowLog).reads(),
	action("sender.list", (*Ops).ListSenders).reads(),
	action("sender.deadletters", (*Ops).SenderLetters).reads(),
	action("sender.discard", (*Ops).DiscardSenderLetters),
	action("overview.show", (*Ops).ShowOverview).reads(),
	action("reminder.list", (*Ops).ListReminders).reads(),
	action("optout.add", (*Ops).AddOptOut),
	action("optout.remove", (*Ops).RemoveOptOut),
	action("optout.show", (*Ops).ShowOptOut).reads(),
	action("deadletter.list", (*Ops).ListLetters).reads(),
	action("deadletter.groups", (*Ops).GroupLetters).reads(),
	action("deadletter.show", (*Ops).ShowLetter).reads(),
	action("deadletter.retry", (*Ops).RetryLetter).atMost(wire.MaxMessage), // it has lines
	action("deadletter.discard", (*Ops).DiscardLetters),
	action("webhook.create", (*Ops).CreateWebhook),
	action("webhook.list", (*Ops).ListWebhooks).reads(),
	action("webhook.show", (*Ops).ShowWebhook).reads(),
	action("webhook.update", (*Ops).UpdateWebhook),
	action("webhook.rotate", (*Ops).RotateWebhook),
	action("webhook.pause", (*Ops).PauseWebhook),
	action("webhook.resume", (*Ops).ResumeWebhook),
	action("webhook.delete", (*Ops).DeleteWebhook),
	action("webhook.replay", (*Ops).ReplayWebhook),
	action("webhook.test", (*Ops).TestWebhook),
	action("webhook.deadletters", (*Ops).WebhookLetters).reads(),
	action("webhook.attempts", (*Ops).WebhookAttempts).reads(),
	action("webhook.retry", (*Ops).RetryWebhook),
	action("webhook.rehearse", (*Ops).RehearseWebhook),
	action("rebuild.start", (*Ops).StartRebuild),
	action("rebuild.undo", (*Ops).UndoRebuild),
	action("rebuild.drop", (*Ops).DropPrevious),
	action("verify.start", (*Ops).StartVerify),
	action("backup.start", (*Ops).StartBackup),
	action("job.show", (*Ops).ShowJob).reads(),
	action("job.list", (*Ops).ListJobs).reads(),
	action("job.stop", (*Ops).StopJob),
	action("coupon.list", (*Ops).ListCoupons).reads(),
	action("coupons.void", (*Ops).VoidCoupons).atMost(wire.MaxMessage), // it has a list
	action("coupons.extend", (*Ops).ExtendCoupons).atMost(wire.MaxMessage),
	cloneAction(),
	action("campaign.diff", (*Ops).DiffCampaigns).reads(),
	action("campaign.changes", (*Ops).ListChangesOf).reads(),
	action("campaign.statistics", (*Ops).ListDays).reads(),
	action("due.list", (*Ops).ListDue).reads(),
}

// action makes a row from a method of Ops.
func action[Q, A any](name string, method func(*Ops, context.Context, Caller, Q) (A, error)) Action {
	request := reflect.TypeFor[Q]()
	a := Action{Name: name, Operation: access.OperationOn(name), Fields: FieldsOf(request), Most: wire.MaxLine, Request: request, Answer: reflect.TypeFor[A]()}
	a.call = func(o *Ops, ctx context.Context, who Caller, fields Fields) (any, error) {
		q, err := Decode[Q](a.Fields, fields)
		if err != nil {
			return nil, err
		}
		ends := Ends{}
		if list, ok := any(&q).(paged); ok {
			ends = o.Cursors.Of(name, who.Principal, &q)
			if *list.cursor(), err = ends.Open(*list.cursor()); err != nil {
				return nil, err
			}
		}
		answer, err := method(o, ctx, who, q)
		if part, ok := any(&answer).(page); ok {
			*part.next() = ends.Seal(*part.next())
		}
		return answer, err
	}
	return a
}

func (a Action) atMost(bytes int) Action {
	a.Most = bytes
	return a
}

func (a Action) reads() Action {
	a.Reads = true
	return a
}

// Named returns the action of a name, nil = there is none.
func Named(name string) *Action {
	for i := range Actions {
		if Actions[i].Name == name {
			return &Actions[i]
		}
	}
	return nil
}

// Takes lists the fields of the request, for people.
func (a *Action) Takes() string { return Names(a.Fields) }

// idField is the field of a request of the micro service whose retry has no second effect. HTTP has a header.
const idField = "id"

// TakesID reports whether a request has the field, beside Fields. One that has such a field of its own is a repeat by itself.
func (a *Action) TakesID() bool {
	return !a.Reads && !slices.ContainsFunc(a.Fields, func(f Field) bool { return f.Name == idField })
}

// Parse reads the JSON object of a request, without the fields of its sender, which it gives to who; no text is an empty one.
func (a *Action) Parse(data []byte, who *Caller) (Fields, error) {
	if len(data) > a.Most {
		return nil, &Refusal{Code: wire.Invalid, Message: fmt.Sprintf("the request has %d bytes, at most %d are allowed", len(data), a.Most)}
	}
	fields, err := ParseFields(data)
	if err == nil && a.TakesID() {
		err = fields.take(idField, &who.Once)
	}
	if err == nil {
		err = fields.take("request_id", &who.Request)
	}
	return fields, err
}

// take removes an id from the fields.
func (given Fields) take(name string, into *string) error {
	if raw := given[name]; raw != nil && (json.Unmarshal(raw, into) != nil || *into == "" || len(*into) > wire.MaxCommandID || !wire.Printable(*into)) {
		return invalid(name, "must be 1 to 64 bytes of printable UTF-8")
	}
	delete(given, name)
	return nil
}

// Do carries out a request of an authenticated caller. A *Replayed is the answer to the same request before, under the same
// who.Once. The error is a *Refusal.
func (a *Action) Do(ctx context.Context, o *Ops, who Caller, fields Fields) (any, error) {
	if o == nil {
		return nil, &Refusal{Code: Unavailable, Message: "this server does not serve it"}
	}
	campaign := ""
	if !a.Operation.Whole() {
		if json.Unmarshal(fields["campaign"], &campaign) != nil || !wire.ValidCampaignName(campaign) {
			campaign = "" // refused below
		}
	}
	err := who.Check(a.Operation, campaign)
	if err == nil {
		var answer any
		if answer, err = a.once(ctx, o, who, fields); err == nil {
			return answer, nil
		}
	}
	return nil, RefusalOf(err)
}

// Replayed is the first answer to a request.
type Replayed struct {
	Answer any // of the action's type, json.RawMessage if that is of a package above
	Body   json.RawMessage
}

// MarshalJSON returns the first answer as it was.
func (r *Replayed) MarshalJSON() ([]byte, error) { return r.Body, nil }

// once carries out a request, or returns its first answer. A job is named after who.Makes: a start that was cut off finds it.
func (a *Action) once(ctx context.Context, o *Ops, who Caller, fields Fields) (any, error) {
	if who.Once == "" || a.Reads {
		return a.act(ctx, o, who, fields)
	}
	request, err := json.Marshal(map[string]Fields{a.Name: fields})
	if err != nil {
		return nil, &Refusal{Code: Malformed, Message: err.Error()}
	}
	var answer any
	one := once.Request{Body: request, Repeatable: a.repeatable || a.Answer == reflect.TypeFor[Job]()}
	body, replayed, err := o.DoOnce(ctx, who, one, func(name string) (body []byte, forget bool, err error) {
		who.Makes = name
		if answer, err = a.act(ctx, o, who, fields); err != nil {
			return nil, RefusalOf(err).Code != UnknownOutcome, err
		}
		body, err = json.Marshal(answer)
		return body, false, err
	})
	switch {
	case errors.Is(err, once.ErrCutOff):
		return nil, &Refusal{Code: UnknownOutcome, Message: err.Error() + "; see " + a.shows()}
	case !replayed:
		return answer, err
	}
	first := &Replayed{json.RawMessage(body), body}
	if a.Answer.Kind() != reflect.Interface {
		typed := reflect.New(a.Answer)
		if err := json.Unmarshal(body, typed.Interface()); err != nil {
			return nil, fmt.Errorf("the first answer cannot be read: %w", err)
		}
		first.Answer = typed.Elem().Interface()
	}
	if job, ok := first.Answer.(Job); ok && o.Jobs.canGoOn(ctx, job.ID) {
		return a.act(ctx, o, who, fields)
	}
	return first, nil
}

// act carries out a request. What changes something is kept for ever, or recorded so.
func (a *Action) act(ctx context.Context, o *Ops, who Caller, fields Fields) (any, error) {
	if !a.Reads {
		bytes := 0
		for _, raw := range fields {
			bytes += len(raw)
		}
		if err := o.Audit.Room(who.ID, bytes); err != nil {
			return nil, err
		}
	}
	return a.call(o, ctx, who, fields)
}

// DoOnce carries out a request of a caller once for its id who.Once, as once.Store.Do has it, for a day if it names no time; each time
// if there is no id.
func (o *Ops) DoOnce(ctx context.Context, who Caller, r once.Request, do func(name string) (answer []byte, forget bool, err error)) (answer []byte, replayed bool, err error) {
	if who.Once == "" {
		answer, _, err = do("")
		return answer, false, err
	}
	r.Client, r.For, r.ID = who.Client(), cmp.Or(r.For, once.Day), who.Once
	return o.Once.Do(ctx, r, do)
}

// shows names the requests that show what the action has changed.
func (a *Action) shows() string {
	noun, _, _ := strings.Cut(a.Name, ".")
	for i := range Actions {
		if name := Actions[i].Name; Actions[i].Reads && strings.HasPrefix(name, noun+".") {
			return "scrip audit and scrip " + strings.ReplaceAll(name, ".", " ")
		}
	}
	return "scrip audit"
}
