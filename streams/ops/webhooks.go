package ops

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/webhook"
)

// CreateWebhook are the settings of a webhook, which package webhook checks.
type CreateWebhook struct {
	URL         string        `json:"url" doc:"An https URL of at most 2048 bytes, without user and fragment."`
	Types       []string      `json:"types" nullable:"false" doc:"Event types such as coupon.claimed, or coupon.* and campaign.*."`
	Campaigns   []string      `json:"campaigns,omitempty" nullable:"false" doc:"That it is limited to, at most 100; absent = all."`
	Batch       int           `json:"batch,omitempty" doc:"The most events in one request, 1 to 500; 1 unless given."`
	Rate        int           `json:"rate,omitempty" doc:"The most requests a second, 1 to 1,000; 50 unless given."`
	Concurrency int           `json:"concurrency,omitempty" doc:"The most requests at once, 1 to 64; 4 unless given."`
	MaxAge      wire.Period   `json:"max_age,omitempty" doc:"After how long an event is a dead letter instead, 1h to 720h; 168h unless given."`
	Schedule    []wire.Period `json:"schedule,omitempty" nullable:"false" doc:"The waits between tries, 1 to 20 durations of 1s to 24h such as 5s, 5m; ten tries within three days unless given."`
	GiveUp4xx   bool          `json:"give_up_4xx,omitempty" doc:"Make events dead letters at once when the endpoint answers 4xx other than 408, 409, 410, 425 and 429."`
	Codes       bool          `json:"codes,omitempty" doc:"Include codes and attributes."`
}

// MadeWebhook is a webhook with its secret.
type MadeWebhook struct {
	webhook.Endpoint
	Secret string `json:"secret" doc:"With which its receiver verifies signatures. It cannot be read again."`
}

// CreateWebhook makes a webhook. Delivery starts with events from now on.
func (o *Ops) CreateWebhook(ctx context.Context, who Caller, q CreateWebhook) (MadeWebhook, error) {
	e, secret, err := o.Webhooks.Create(ctx, who, webhook.Config(q))
	return MadeWebhook{e, secret.Text()}, err
}

// ListWebhooks lists webhooks without their secrets, oldest first.
func (o *Ops) ListWebhooks(ctx context.Context, _ Caller, q Paging) (Page[webhook.Endpoint], error) {
	all, err := o.Webhooks.List(ctx)
	if err != nil {
		return Page[webhook.Endpoint]{}, err
	}
	return PageOf(all, q, func(e *webhook.Endpoint) string { return e.ID })
}

// NamedWebhook names a webhook.
type NamedWebhook struct {
	Webhook string `json:"webhook" doc:"Its id."`
}

// VersionedWebhook names a webhook, and the version that a change is for.
type VersionedWebhook struct {
	NamedWebhook
	Version uint64 `json:"version,omitempty" doc:"That the change is for; absent = any."`
}

// WebhookDetails is a webhook with how far it is.
type WebhookDetails struct {
	webhook.Endpoint
	Positions []push.Position `json:"positions" nullable:"false" doc:"How far it is, for each lane; none before its first run."`
}

// ShowWebhook shows a webhook, and how far it is.
func (o *Ops) ShowWebhook(ctx context.Context, _ Caller, q NamedWebhook) (WebhookDetails, error) {
	e, err := o.Webhooks.Show(ctx, q.Webhook)
	if err != nil {
		return WebhookDetails{}, err
	}
	at, err := o.Webhooks.Positions(ctx, &e)
	return WebhookDetails{e, append([]push.Position{}, at...)}, err
}

// WebhookPatch is a change of settings: what is left out stays.
type WebhookPatch struct {
	URL         *string      `json:"url,omitempty"`
	Types       *[]string    `json:"types,omitempty" doc:"One that is added starts now: see replay."`
	Campaigns   *[]string    `json:"campaigns,omitempty" doc:"Empty = all."`
	Batch       *int         `json:"batch,omitempty"`
	Rate        *int         `json:"rate,omitempty"`
	Concurrency *int         `json:"concurrency,omitempty"`
	MaxAge      *wire.Period `json:"max_age,omitempty"`
	Schedule    *[]string    `json:"schedule,omitempty" doc:"Empty = ten tries within three days."`
	GiveUp4xx   *bool        `json:"give_up_4xx,omitempty"`
	Codes       *bool        `json:"codes,omitempty"`
}

// onto returns settings with those of the patch: both have the same names in JSON.
func (p *WebhookPatch) onto(s webhook.Config) webhook.Config {
	given, err := json.Marshal(p)
	if err == nil {
		err = json.Unmarshal(given, &s)
	}
	if err != nil {
		panic("ops: the patch of a webhook does not fit its settings: " + err.Error()) // the types are wrong
	}
	return s
}

// UpdateWebhook changes settings of a webhook.
type UpdateWebhook struct {
	VersionedWebhook
	WebhookPatch
}

// UpdateWebhook changes settings of a webhook.
func (o *Ops) UpdateWebhook(ctx context.Context, who Caller, q UpdateWebhook) (webhook.Endpoint, error) {
	if q.WebhookPatch == (WebhookPatch{}) {
		return webhook.Endpoint{}, &Refusal{Code: wire.Invalid, Message: "nothing to change; give at least one setting"}
	}
	return o.Webhooks.Set(ctx, who, q.Webhook, q.Version, q.onto)
}

// RotateWebhook gives a webhook another secret.
func (o *Ops) RotateWebhook(ctx context.Context, who Caller, q NamedWebhook) (MadeWebhook, error) {
	e, secret, err := o.Webhooks.Rotate(ctx, who, q.Webhook)
	return MadeWebhook{e, secret.Text()}, err
}

// PauseWebhook ends deliveries for now.
func (o *Ops) PauseWebhook(ctx context.Context, who Caller, q VersionedWebhook) (webhook.Endpoint, error) {
	return o.Webhooks.Make(ctx, who, webhook.Change{Webhook: q.Webhook, What: webhook.Pause}, q.Version)
}

// ResumeWebhook delivers again.
func (o *Ops) ResumeWebhook(ctx context.Context, who Caller, q VersionedWebhook) (webhook.Endpoint, error) {
	return o.Webhooks.Make(ctx, who, webhook.Change{Webhook: q.Webhook, What: webhook.Resume}, q.Version)
}

// DeletedWebhook is a webhook that is gone.
type DeletedWebhook struct {
	ID    string `json:"id"`
	State string `json:"state" doc:"deleted"`
}

// DeleteWebhook removes a webhook and its position; its dead letters stay.
func (o *Ops) DeleteWebhook(ctx context.Context, who Caller, q VersionedWebhook) (DeletedWebhook, error) {
	_, err := o.Webhooks.Make(ctx, who, webhook.Change{Webhook: q.Webhook, What: webhook.Delete}, q.Version)
	return DeletedWebhook{q.Webhook, "deleted"}, err
}

// ReplayWebhook is a time from which a webhook gets all events again.
type ReplayWebhook struct {
	VersionedWebhook
	From time.Time `json:"from" doc:"Events that were stored from then on are delivered again."`
}

// ReplayWebhook delivers again what happened from a time on.
func (o *Ops) ReplayWebhook(ctx context.Context, who Caller, q ReplayWebhook) (webhook.Endpoint, error) {
	return o.Webhooks.Make(ctx, who, webhook.Change{Webhook: q.Webhook, What: webhook.Replay, From: q.From}, q.Version)
}

// WebhookResult is the result of what the server that has the webhook was requested to do.
type WebhookResult struct {
	Result  string `json:"result,omitempty" doc:"delivered, or why not; of a retry how many events were delivered and how many not."`
	Pending bool   `json:"pending,omitempty" doc:"There is no result yet: it will be in last_test, last_retry or last_rehearsal of the webhook."`
}

// TestWebhook sends a test request.
func (o *Ops) TestWebhook(ctx context.Context, who Caller, q NamedWebhook) (WebhookResult, error) {
	return o.result(ctx, who, webhook.Change{Webhook: q.Webhook, What: webhook.Test}, func(e *webhook.Endpoint) (string, bool) { return e.LastTest, !e.Testing() })
}

// RetryWebhook delivers the dead letters of a webhook again, each once.
func (o *Ops) RetryWebhook(ctx context.Context, who Caller, q NamedWebhook) (WebhookResult, error) {
	return o.result(ctx, who, webhook.Change{Webhook: q.Webhook, What: webhook.Retry}, func(e *webhook.Endpoint) (string, bool) { return e.LastRetry, !e.Retrying() })
}

// RehearseWebhook names a webhook, and how many tries of a rehearsal fail.
type RehearseWebhook struct {
	NamedWebhook
	Fail int `json:"fail,omitempty" minimum:"0" maximum:"21" default:"2" doc:"How many tries fail: their requests are made, and the answers ignored as if they were lost. As many as the schedule has tries make a dead letter."`
}

// RehearseWebhook delivers the newest event again, with tries that fail and the waits of the schedule, scaled to 40 seconds in all.
func (o *Ops) RehearseWebhook(ctx context.Context, who Caller, q RehearseWebhook) (WebhookResult, error) {
	return o.result(ctx, who, webhook.Change{Webhook: q.Webhook, What: webhook.Rehearse, Fail: q.Fail},
		func(e *webhook.Endpoint) (string, bool) { return e.LastRehearsal, !e.Rehearsing() })
}

const (
	// resultPoll is the pause between looks for a result.
	resultPoll = 200 * time.Millisecond
	// resultRoom is left of the caller's time for the answer that there is no result yet.
	resultRoom = 500 * time.Millisecond
)

// result makes a change that requests something of the server that has the webhook, and waits for its result.
func (o *Ops) result(ctx context.Context, who Caller, c webhook.Change, of func(*webhook.Endpoint) (string, bool)) (WebhookResult, error) {
	if _, err := o.Webhooks.Make(ctx, who, c, 0); err != nil {
		return WebhookResult{}, err
	}
	if until, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until.Add(-resultRoom))
		defer cancel()
	}
	for {
		if natsx.Pause(ctx, resultPoll) != nil {
			return WebhookResult{Pending: true}, nil
		}
		e, err := o.Webhooks.Show(ctx, c.Webhook)
		if errors.Is(err, webhook.ErrNotFound) {
			return WebhookResult{}, err // deleted in between
		}
		if err != nil {
			continue // the change is stored: the result will be, too
		}
		if text, done := of(&e); done {
			return WebhookResult{Result: text}, nil
		}
	}
}

// ListWebhookLetters is a page of dead letters of a webhook.
type ListWebhookLetters struct {
	NamedWebhook
	Paging
}

// WebhookLetter is a message of the log whose events, or some of them, were given up.
type WebhookLetter struct {
	ID       uint64    `json:"id"`
	Lane     int       `json:"lane"`
	Stream   string    `json:"stream"`
	Sequence uint64    `json:"sequence"`
	Events   int       `json:"events" doc:"How many were given up."`
	Tries    int       `json:"tries"`
	Error    string    `json:"error" doc:"Of the last try."`
	At       time.Time `json:"at" doc:"When they were given up."`
}

// WebhookLetters lists events that were given up, oldest first.
func (o *Ops) WebhookLetters(ctx context.Context, _ Caller, q ListWebhookLetters) (page Page[WebhookLetter], err error) {
	after, _ := strconv.ParseUint(q.After, 10, 64) // 0 = from the oldest
	all, next, err := o.Webhooks.Letters(ctx, q.Webhook, after, q.Limit)
	if next != 0 {
		page.Next = strconv.FormatUint(next, 10)
	}
	for _, l := range all {
		page.Items = append(page.Items, WebhookLetter{ID: l.ID, Lane: l.Lane, Stream: l.Stream, Sequence: l.Sequence, Events: len(l.Reminders),
			Tries: l.Tries, Error: l.Error, At: l.At})
	}
	return page, err
}

// ListAttempts names a webhook.
type ListAttempts struct {
	NamedWebhook
	Paging
}

// WebhookAttempts lists the last requests to a webhook, newest first, those of the last seconds perhaps not yet.
func (o *Ops) WebhookAttempts(ctx context.Context, _ Caller, q ListAttempts) (Page[webhook.Attempt], error) {
	all, err := o.Webhooks.Attempts(ctx, o.Once, q.Webhook)
	if err != nil {
		return Page[webhook.Attempt]{}, err
	}
	return PageOf(all, q.Paging, func(a *webhook.Attempt) string { return a.At.Format(time.RFC3339Nano) + " " + a.ID })
}
