package console

import (
	"slices"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/webhook"
)

var deliverPages = []page{
	{path: "/webhooks", name: "webhooks", title: "Webhooks", nav: true, operation: access.OpManageWebhooks, load: func(v *view) any {
		return list[ops.Page[webhook.Endpoint]](v, "/v1/webhooks")
	}},
	{path: "/webhooks/{webhook}", name: "webhook", operation: access.OpManageWebhooks, load: loadWebhook},
}

var webhookFields = []string{"url", "types", "campaigns", "batch", "rate", "concurrency", "max_age", "schedule", "give_up_4xx", "codes"}

const webhookFlags = " [--types {types}] [--campaign {campaigns}] [--batch {batch}] [--rate {rate}] [--concurrency {concurrency}] [--max-age {max_age}] [--schedule {schedule}] [--give-up-4xx={give_up_4xx}] [--codes={codes}]"

var deliverActs = []act{
	{id: "createWebhook", title: "Add a webhook", fields: webhookFields, shows: true, then: "/webhooks", about: "Delivery starts with events from now on. The secret, by which the receiver checks signatures, is shown once.",
		cli: "scrip webhook create {url}" + webhookFlags},
	{id: "updateWebhook", title: "Change", fields: webhookFields, edits: "/v1/webhooks/{webhook}", about: "In force within a second.", cli: "scrip webhook update {webhook} [--url {url}]" + webhookFlags},
	{id: "rotateWebhook", title: "Rotate the secret", shows: true, cli: "scrip webhook rotate {webhook}"},
	{id: "pauseWebhook", title: "Pause", cli: "scrip webhook pause {webhook}"},
	{id: "resumeWebhook", title: "Resume", cli: "scrip webhook resume {webhook}"},
	{id: "testWebhook", title: "Send a test", answers: true, cli: "scrip webhook test {webhook}"},
	{id: "rehearseWebhook", title: "Rehearse failures", fields: []string{"fail"}, answers: true, cli: "scrip webhook rehearse {webhook} [--fail {fail}]"},
	{id: "replayWebhook", title: "Replay", fields: []string{"from"}, cli: "scrip webhook replay {webhook} --from {from}"},
	{id: "retryWebhookDeadLetters", title: "Retry what was given up", answers: true, cli: "scrip webhook retry {webhook}"},
	{id: "deleteWebhook", title: "Delete", typed: "webhook", then: "/webhooks", cli: "scrip webhook delete {webhook}"},
}

// webhookData is a webhook with what it could not deliver.
type webhookData struct {
	Part[ops.WebhookDetails]
	Letters  Part[ops.Page[ops.WebhookLetter]]
	Attempts Part[ops.Page[webhook.Attempt]]
}

// Success is the part of the last requests that were delivered, in percent, and P99 the time that all but one of a hundred took.
func (d webhookData) Success() int {
	ok := 0
	for _, a := range d.Attempts.Data.Items {
		if a.Error == "" {
			ok++
		}
	}
	return 100 * ok / max(1, len(d.Attempts.Data.Items))
}

// P99 is in milliseconds.
func (d webhookData) P99() int64 {
	var all []int64
	for _, a := range d.Attempts.Data.Items {
		all = append(all, a.Millis)
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)*99/100]
}

func loadWebhook(v *view) any {
	id := v.r.PathValue("webhook")
	v.Title = "Webhook " + id
	d := webhookData{Part: get[ops.WebhookDetails](v, "/v1/webhooks/"+escape(id)), Letters: list[ops.Page[ops.WebhookLetter]](v, "/v1/webhooks/"+escape(id)+"/dead-letters"),
		Attempts: get[ops.Page[webhook.Attempt]](v, "/v1/webhooks/"+escape(id)+"/attempts")}
	v.Problem = d.Problem
	return d
}
