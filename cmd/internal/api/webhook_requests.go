package api

import (
	"context"
	"errors"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/webhook"
)

// WebhookResult is the result of what a server was requested to do.
type WebhookResult struct {
	Body struct {
		Result  string `json:"result,omitempty" doc:"delivered, or why not; of a retry how many events were delivered and how many not."`
		Pending bool   `json:"pending,omitempty" doc:"There is no result yet: it will be in last_test or last_retry of the webhook."`
	}
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

// WebhookLetters is a page of dead letters of a webhook.
type WebhookLetters struct {
	Body struct {
		DeadLetters []WebhookLetter `json:"dead_letters" nullable:"false" doc:"Oldest first."`
		Next        string          `json:"next,omitempty" doc:"The value of after for the next page; absent on the last one."`
	}
}

func (a *API) testWebhook(ctx context.Context, in *WebhookID) (*WebhookResult, error) {
	return a.requestOf(ctx, webhook.Change{Webhook: in.ID, What: webhook.Test}, func(e *webhook.Endpoint) (string, bool) { return e.LastTest, !e.Testing() })
}

func (a *API) retryWebhookLetters(ctx context.Context, in *WebhookID) (*WebhookResult, error) {
	return a.requestOf(ctx, webhook.Change{Webhook: in.ID, What: webhook.Retry}, func(e *webhook.Endpoint) (string, bool) { return e.LastRetry, !e.Retrying() })
}

// resultPoll is the pause between looks for a result.
const resultPoll = 200 * time.Millisecond

// requestOf makes a change that requests something of the server that has the webhook, and waits for its result.
func (a *API) requestOf(ctx context.Context, c webhook.Change, result func(*webhook.Endpoint) (string, bool)) (*WebhookResult, error) {
	if _, err := a.changeWebhook(ctx, c, WebhookCondition{}); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	out := &WebhookResult{}
	for {
		if natsx.Pause(ctx, resultPoll) != nil {
			out.Body.Pending = true
			return out, nil
		}
		e, err := a.Webhooks.Show(ctx, c.Webhook)
		if errors.Is(err, webhook.ErrNotFound) {
			return nil, webhookProblem(err) // deleted meanwhile
		}
		if err != nil {
			continue // the change is stored: the result will be, too
		}
		if text, done := result(&e); done {
			out.Body.Result = text
			return out, nil
		}
	}
}

func (a *API) webhookLetters(ctx context.Context, in *struct {
	WebhookID
	Paging
}) (*WebhookLetters, error) {
	at, err := parseCursor[struct{ After uint64 }]("webhook-letters", in.After)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	all, next, err := a.Webhooks.Letters(ctx, in.ID, at.After, in.Limit)
	switch {
	case errors.Is(err, webhook.ErrNotFound):
		return nil, webhookProblem(err)
	case err != nil:
		return nil, unavailable("the dead letters cannot be read", err)
	}
	out := &WebhookLetters{}
	out.Body.DeadLetters = make([]WebhookLetter, len(all))
	for i, l := range all {
		out.Body.DeadLetters[i] = WebhookLetter{ID: l.ID, Lane: l.Lane, Stream: l.Stream, Sequence: l.Sequence, Events: len(l.Reminders), Tries: l.Tries, Error: l.Error, At: l.At}
	}
	if at.After = next; next != 0 {
		out.Body.Next = cursor("webhook-letters", at)
	}
	return out, nil
}
