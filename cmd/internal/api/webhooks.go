package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/webhook"
)

// Webhook is a webhook without its secret.
type Webhook struct{ webhook.Endpoint }

// TransformSchema lets later versions add fields.
func (Webhook) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema { return open(s) }

// WebhookDetails is a webhook with how far it is.
type WebhookDetails struct {
	Webhook
	Positions []push.Position `json:"positions" nullable:"false" doc:"How far it is, for each lane; none before its first run."`
}

// NewWebhook is a webhook with its secret.
type NewWebhook struct {
	ETag     string `header:"ETag" doc:"For If-Match."`
	Location string `header:"Location"`
	Body     struct {
		Webhook Webhook `json:"webhook"`
		Secret  string  `json:"secret" doc:"With which its receiver verifies signatures. It cannot be read again."`
	}
}

// OneWebhook is an answer with a webhook.
type OneWebhook struct {
	ETag string `header:"ETag" doc:"For If-Match."`
	Body Webhook
}

// NewWebhookSettings is the body of a creation. Package webhook checks the values.
type NewWebhookSettings struct {
	URL         string   `json:"url" doc:"An https URL of at most 2048 bytes, without user and fragment."`
	Types       []string `json:"types" nullable:"false" doc:"Event types such as coupon.claimed, or coupon.* and campaign.*."`
	Campaigns   []string `json:"campaigns,omitempty" nullable:"false" doc:"That it is limited to, at most 100; absent = all."`
	Batch       int      `json:"batch,omitempty" doc:"The most events in one request, 1 to 500; 1 unless given."`
	Rate        int      `json:"rate,omitempty" doc:"The most requests a second, 1 to 1,000; 50 unless given."`
	Concurrency int      `json:"concurrency,omitempty" doc:"The most requests at once, 1 to 64; 4 unless given."`
	MaxAgeHours int      `json:"max_age_hours,omitempty" doc:"After how many hours an event is a dead letter instead, 1 to 720; 168 unless given."`
	Codes       bool     `json:"codes,omitempty" doc:"Include codes and attributes."`
}

// WebhookPatch is the body of a change: what is left out stays.
type WebhookPatch struct {
	URL         *string   `json:"url,omitempty"`
	Types       *[]string `json:"types,omitempty" doc:"One that is added begins now: see replay."`
	Campaigns   *[]string `json:"campaigns,omitempty" doc:"Empty = all."`
	Batch       *int      `json:"batch,omitempty"`
	Rate        *int      `json:"rate,omitempty"`
	Concurrency *int      `json:"concurrency,omitempty"`
	MaxAgeHours *int      `json:"max_age_hours,omitempty"`
	Codes       *bool     `json:"codes,omitempty"`
}

// onto returns settings with those of the patch.
func (p *WebhookPatch) onto(s webhook.Settings) webhook.Settings {
	patch(&s.URL, p.URL)
	patch(&s.Types, p.Types)
	patch(&s.Campaigns, p.Campaigns)
	patch(&s.Batch, p.Batch)
	patch(&s.Rate, p.Rate)
	patch(&s.Concurrency, p.Concurrency)
	patch(&s.MaxAgeHours, p.MaxAgeHours)
	patch(&s.Codes, p.Codes)
	return s
}

func patch[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// WebhookID is the id in a path.
type WebhookID struct {
	ID string `path:"webhook" maxLength:"64" doc:"Its id."`
}

// WebhookCondition is the version that a change is for.
type WebhookCondition struct {
	IfMatch string `header:"If-Match" doc:"The ETag of the webhook as it was read, or * for any. Once settings, state or secret are others, the change is refused with 412: read it again."`
}

// version returns 0 for any.
func (c WebhookCondition) version() (uint64, error) {
	if c.IfMatch == "" || c.IfMatch == "*" {
		return 0, nil
	}
	tag, ok := strings.CutPrefix(c.IfMatch, `"`)
	tag, closed := strings.CutSuffix(tag, `"`)
	n, err := strconv.ParseUint(tag, 10, 64)
	if !ok || !closed || err != nil || n == 0 {
		return 0, web.New(web.Malformed, `If-Match must be one ETag of the webhook, such as "17" with its quotes, or *`).At("header.If-Match", "must be one ETag or *")
	}
	return n, nil
}

func webhookTag(e *webhook.Endpoint) string { return fmt.Sprintf(`"%d"`, e.Version) }

// WebhookList are webhooks.
type WebhookList struct {
	Body struct {
		Webhooks []Webhook `json:"webhooks" nullable:"false" doc:"All, oldest first; at most 100 can be."`
	}
}

func (a *API) webhookRoutes() {
	route := func(method, path, id, summary, about string, status int) Route {
		return Route{Method: method, Path: "/v1/webhooks" + path, ID: id, Tag: "operation", Summary: summary, About: about,
			Operation: access.OpManageWebhooks, Status: status}
	}
	Register(a, route(http.MethodGet, "", "listWebhooks", "List webhooks", "", 0), a.listWebhooks)
	Register(a, route(http.MethodPost, "", "createWebhook", "Create a webhook",
		"Delivery begins with events from now on. The secret is in this answer only. If the answer is lost, delete the webhook and create another.", http.StatusCreated), a.createWebhook)
	Register(a, route(http.MethodGet, "/{webhook}", "getWebhook", "Show a webhook, and how far it is", "", 0), a.getWebhook)
	Register(a, route(http.MethodPatch, "/{webhook}", "updateWebhook", "Change settings of a webhook",
		"If-Match is required, so that two people do not overwrite each other: give the ETag, or * to overwrite. In force within a second.", 0), a.updateWebhook)
	Register(a, route(http.MethodDelete, "/{webhook}", "deleteWebhook", "Delete a webhook",
		"Its position is removed; its dead letters stay.", 0), a.deleteWebhook)
	Register(a, route(http.MethodPost, "/{webhook}/rotate", "rotateWebhook", "Replace the secret of a webhook",
		"For 24 hours requests are signed with both. The secret is in this answer only.", 0), a.rotateWebhook)
	for _, turn := range []struct{ what, summary, about string }{
		{webhook.Pause, "Deliver nothing for now", "The position stays. Events that are older than max_age_hours after the pause become dead letters."},
		{webhook.Resume, "Deliver again", "Also to a webhook that a server disabled."},
	} {
		Register(a, route(http.MethodPost, "/{webhook}/"+turn.what, turn.what+"Webhook", turn.summary, turn.about, 0),
			func(ctx context.Context, in *struct {
				WebhookID
				WebhookCondition
			}) (*OneWebhook, error) {
				return a.changeWebhook(ctx, webhook.Change{Webhook: in.ID, What: turn.what}, in.WebhookCondition)
			})
	}
	Register(a, route(http.MethodPost, "/{webhook}/replay", "replayWebhook", "Deliver again what happened from a time on",
		"Under the same event ids, whatever the age of the events.", 0), a.replayWebhook)
	Register(a, route(http.MethodPost, "/{webhook}/test", "testWebhook", "Send a test request",
		"Of type webhook.test, once, also to a webhook that is paused. The answer comes with the result, or after five seconds.", 0), a.testWebhook)
	Register(a, route(http.MethodGet, "/{webhook}/dead-letters", "listWebhookDeadLetters", "List events that were given up", "", 0), a.webhookLetters)
	Register(a, route(http.MethodPost, "/{webhook}/dead-letters/retry", "retryWebhookDeadLetters", "Deliver dead letters again, each once",
		"Under the same event ids, whatever the age of the events. What fails again stays. The answer comes with the result, or after five seconds.", 0), a.retryWebhookLetters)
}

// webhookProblem is the problem of a change of a webhook.
func webhookProblem(err error) error {
	var invalid *webhook.InvalidError
	switch {
	case errors.Is(err, webhook.ErrNotFound):
		return web.New(web.NotFound, "there is no such webhook; see GET /v1/webhooks")
	case errors.As(err, &invalid):
		return web.New(web.Code(wire.Invalid), err.Error()).At("body", err.Error())
	case errors.Is(err, webhook.ErrChanged):
		return web.New(web.Changed, err.Error()).At("header.If-Match", "is of an older version")
	case errors.Is(err, webhook.ErrForbidden):
		return web.New(web.Forbidden, err.Error()).At("body.codes", "more than this key may")
	case errors.Is(err, webhook.ErrUnknown), errors.Is(err, webhook.ErrUnrecorded):
		return web.New(web.UnknownOutcome, err.Error()+"; see GET /v1/webhooks. A secret that was not returned is replaced by a rotation")
	}
	return unavailable("the webhook was not changed", err)
}

func (a *API) listWebhooks(ctx context.Context, _ *struct{}) (*WebhookList, error) {
	ctx, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	all, err := a.Webhooks.List(ctx)
	if err != nil {
		return nil, unavailable("the webhooks cannot be read", err)
	}
	out := &WebhookList{}
	out.Body.Webhooks = make([]Webhook, len(all))
	for i := range all {
		out.Body.Webhooks[i] = Webhook{all[i]}
	}
	return out, nil
}

func (a *API) createWebhook(ctx context.Context, in *struct{ Body NewWebhookSettings }) (*NewWebhook, error) {
	ctx, cancel := context.WithTimeout(ctx, commandWait)
	defer cancel()
	b := &in.Body
	e, secret, err := a.Webhooks.Create(ctx, author(ctx), webhook.Settings{URL: b.URL, Types: b.Types, Campaigns: b.Campaigns, Batch: b.Batch, Rate: b.Rate,
		Concurrency: b.Concurrency, MaxAgeHours: b.MaxAgeHours, Codes: b.Codes})
	if err != nil {
		return nil, webhookProblem(err)
	}
	out := withSecret(e, secret.Text())
	out.Location = "/v1/webhooks/" + e.ID
	return out, nil
}

func withSecret(e webhook.Endpoint, secret string) *NewWebhook {
	out := &NewWebhook{ETag: webhookTag(&e)}
	out.Body.Webhook, out.Body.Secret = Webhook{e}, secret
	return out
}

func (a *API) getWebhook(ctx context.Context, in *WebhookID) (*struct {
	ETag string `header:"ETag" doc:"For If-Match."`
	Body WebhookDetails
}, error) {
	ctx, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	e, err := a.Webhooks.Show(ctx, in.ID)
	var at []push.Position
	if err == nil {
		at, err = a.Webhooks.Positions(ctx, &e)
	}
	switch {
	case errors.Is(err, webhook.ErrNotFound):
		return nil, webhookProblem(err)
	case err != nil:
		return nil, unavailable("the webhook cannot be read", err)
	}
	return &struct {
		ETag string `header:"ETag" doc:"For If-Match."`
		Body WebhookDetails
	}{webhookTag(&e), WebhookDetails{Webhook{e}, append([]push.Position{}, at...)}}, nil
}

func (a *API) updateWebhook(ctx context.Context, in *struct {
	WebhookID
	WebhookCondition
	Body WebhookPatch
}) (*OneWebhook, error) {
	if in.IfMatch == "" {
		return nil, web.New(web.ConditionRequired, "If-Match is missing: send the ETag of GET /v1/webhooks/"+in.ID+", or *").At("header.If-Match", "missing")
	}
	if in.Body == (WebhookPatch{}) {
		return nil, web.New(web.Code(wire.Invalid), "nothing to change; give at least one setting").At("body", "give at least one setting")
	}
	version, err := in.version()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, commandWait)
	defer cancel()
	e, err := a.Webhooks.Set(ctx, author(ctx), in.ID, version, in.Body.onto)
	if err != nil {
		return nil, webhookProblem(err)
	}
	return &OneWebhook{webhookTag(&e), Webhook{e}}, nil
}

// changeWebhook makes a change, of the version that is given.
func (a *API) changeWebhook(ctx context.Context, c webhook.Change, only WebhookCondition) (*OneWebhook, error) {
	version, err := only.version()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, commandWait)
	defer cancel()
	e, err := a.Webhooks.Make(ctx, author(ctx), c, version)
	if err != nil {
		return nil, webhookProblem(err)
	}
	return &OneWebhook{webhookTag(&e), Webhook{e}}, nil
}

// DeletedWebhook is the answer to a deletion.
type DeletedWebhook struct {
	Body struct {
		ID    string `json:"id"`
		State string `json:"state" doc:"deleted"`
	}
}

func (a *API) deleteWebhook(ctx context.Context, in *struct {
	WebhookID
	WebhookCondition
}) (*DeletedWebhook, error) {
	if _, err := a.changeWebhook(ctx, webhook.Change{Webhook: in.ID, What: webhook.Delete}, in.WebhookCondition); err != nil {
		return nil, err
	}
	out := &DeletedWebhook{}
	out.Body.ID, out.Body.State = in.ID, "deleted"
	return out, nil
}

func (a *API) rotateWebhook(ctx context.Context, in *WebhookID) (*NewWebhook, error) {
	ctx, cancel := context.WithTimeout(ctx, commandWait)
	defer cancel()
	e, secret, err := a.Webhooks.Rotate(ctx, author(ctx), in.ID)
	if err != nil {
		return nil, webhookProblem(err)
	}
	return withSecret(e, secret.Text()), nil
}

func (a *API) replayWebhook(ctx context.Context, in *struct {
	WebhookID
	WebhookCondition
	Body struct {
		From time.Time `json:"from" doc:"Events that were stored from then on are delivered again."`
	}
}) (*OneWebhook, error) {
	return a.changeWebhook(ctx, webhook.Change{Webhook: in.ID, What: webhook.Replay, From: in.Body.From}, in.WebhookCondition)
}
