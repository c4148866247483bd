package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
)

// Action is a row of the table of actions.
type Action struct {
	// Name is that of the endpoint of the micro service without "scrip.", and of the request of the command line.
	Name string
	// Operation is what its caller must be allowed to do. If that is about one campaign, the field campaign names it.
	Operation access.Operation
	// Fields are those of the request.
	Fields []Field
	// Most is how many bytes a request may have.
	Most int
	// Request and Answer are their types. An Answer of kind interface is of a package above this one.
	Request, Answer reflect.Type

	call func(o *Ops, ctx context.Context, who Caller, fields Fields) (any, error)
}

// Actions are all actions of people.
var Actions = []Action{
	action("access.create", (*Ops).CreateKey),
	action("access.list", (*Ops).ListKeys),
	action("access.revoke", (*Ops).RevokeKey),
	action("access.rotate", (*Ops).RotateKey),
	action("config.get", (*Ops).GetSettings),
	action("config.set", (*Ops).SetSetting),
	action("config.history", (*Ops).SettingsHistory),
	action("audit.list", (*Ops).ListAudit),
	action("codes.export", (*Ops).RecordExport),
	action("status.show", (*Ops).ShowStatus),
	action("deadletter.list", (*Ops).ListLetters),
	action("deadletter.show", (*Ops).ShowLetter),
	action("deadletter.retry", (*Ops).RetryLetter).atMost(wire.MaxMessage), // it has lines
	action("deadletter.discard", (*Ops).DiscardLetters),
	action("webhook.create", (*Ops).CreateWebhook),
	action("webhook.list", (*Ops).ListWebhooks),
	action("webhook.show", (*Ops).ShowWebhook),
	action("webhook.update", (*Ops).UpdateWebhook),
	action("webhook.rotate", (*Ops).RotateWebhook),
	action("webhook.pause", (*Ops).PauseWebhook),
	action("webhook.resume", (*Ops).ResumeWebhook),
	action("webhook.delete", (*Ops).DeleteWebhook),
	action("webhook.replay", (*Ops).ReplayWebhook),
	action("webhook.test", (*Ops).TestWebhook),
	action("webhook.deadletters", (*Ops).WebhookLetters),
	action("webhook.retry", (*Ops).RetryWebhook),
	action("webhook.rehearse", (*Ops).RehearseWebhook),
	action("rebuild.start", (*Ops).StartRebuild),
	action("rebuild.undo", (*Ops).UndoRebuild),
	action("rebuild.drop", (*Ops).DropPrevious),
	action("verify.start", (*Ops).StartVerify),
	action("backup.start", (*Ops).StartBackup),
	action("job.show", (*Ops).ShowJob),
	action("job.list", (*Ops).ListJobs),
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
		return method(o, ctx, who, q)
	}
	return a
}

func (a Action) atMost(bytes int) Action {
	a.Most = bytes
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

// Parse reads the JSON object of a request; no text is an empty one.
func (a *Action) Parse(data []byte) (Fields, error) {
	if len(data) > a.Most {
		return nil, &Refusal{Code: wire.Invalid, Message: fmt.Sprintf("the request has %d bytes, at most %d are allowed", len(data), a.Most)}
	}
	return ParseFields(data)
}

// Do carries out a request of an authenticated caller. The error is a *Refusal.
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
		if answer, err = a.call(o, ctx, who, fields); err == nil {
			return answer, nil
		}
	}
	return nil, refusal(err)
}
