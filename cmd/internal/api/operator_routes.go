package api

import (
	"cmp"
	"context"
	"net/http"
	"reflect"

	"github.com/seed-4a2410e3/scrip/cmd/internal/sample"
	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/projections/readmodel"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// actionRoute is the route of an action of package ops.
type actionRoute struct {
	method, path string
	action       string // by name
	id           string // in the document
	tag          string // "" = operation
	summary      string
	about        string
	status       int // of a success; 0 = 200
	match        match
	tagged       bool // the answer has a version, which is its ETag
	answer       any  // of the type of an answer that is of a package above ops
}

const (
	get    = http.MethodGet
	post   = http.MethodPost
	remove = http.MethodDelete
)

var actionRoutes = []actionRoute{
	{method: get, path: "/v1/status", action: "status.show", id: "getStatus", summary: "Show the status of servers and lanes",
		about: "As `scrip status` shows it. ready is false while a lane has no owner or a server is not ready.", answer: status.Status{}},
	{method: get, path: "/v1/overview", action: "overview.show", id: "getOverview", summary: "Show what happens, at a glance",
		about: "Rates of the whole log, the oldest due work, how late tables are, disk, and the alerts that would fire by the metrics of this server. One of each ten seconds for ten minutes.", answer: sample.Overview{}},
	{method: get, path: "/v1/settings", action: "config.get", id: "getSettings", summary: "Show the settings in force", tagged: true},
	{method: http.MethodPatch, path: "/v1/settings", action: "config.set", id: "changeSettings", summary: "Change settings while servers run", match: mustMatch, tagged: true,
		about: "All or none, as one change; null restores a default. If-Match is required, so that two people do not overwrite each other: give the " +
			"ETag, or * to overwrite. They are in force at all servers within a second."},
	{method: get, path: "/v1/settings/changes", action: "config.changes", id: "listSettingChanges", summary: "List changes of settings"},
	{method: get, path: "/v1/audit", action: "audit.list", id: "readAudit", summary: "Read the audit stream",
		about: "Log-ins, changes of keys, settings and webhooks, exports, and look-ups of codes in clear: newest first. A page selects from 4,000 entries: it may be short, or empty, and have a next."},
	{method: get, path: reminders, action: "reminder.list", id: "listReminders", tag: "shop", summary: "List the reminders of a campaign",
		about: "Newest first, from the read tables, which may lag a little. " + partsAbout},

	{method: http.MethodPut, path: "/v1/opt-outs/{customer_id}", action: "optout.add", id: "addOptOut", tag: "shop", summary: "Let a customer get no reminders",
		about: "Of any campaign. No delivery to the customer starts once this is answered; what is under way is not recalled. Repeating it changes nothing."},
	{method: remove, path: "/v1/opt-outs/{customer_id}", action: "optout.remove", id: "removeOptOut", tag: "shop", summary: "Let a customer get reminders again"},
	{method: get, path: "/v1/opt-outs/{customer_id}", action: "optout.show", id: "getOptOut", tag: "shop", summary: "Show whether a customer gets no reminders"},

	{method: get, path: "/v1/commands/{id}", action: "command.show", id: "getCommand", tag: "coupons", summary: "Find what a command did",
		about: "Its events. There is no index: for 200 ms the log is searched, from its newest messages on, until some are found. What was not reached is unknown: searched has how far it came, and next goes on there. " +
			"A command that was refused, or repeated, has no event. A server does one search at a time and rests after it; a key has four that run or wait, further ones are 429 overloaded."},
	{method: get, path: "/v1/dead-letters", action: "deadletter.list", id: "listDeadLetters", summary: "List dead letters", answer: ops.Page[readmodel.Letter]{},
		about: "Lines that could not be parsed or applied. They may hold codes and customers: a key that does not see both gets the reasons, without what they quote, and no lines."},
	{method: get, path: "/v1/dead-letters/groups", action: "deadletter.groups", id: "groupDeadLetters", summary: "Group open dead letters by cause",
		about: "Among the newest 10,000, the largest group first."},
	{method: get, path: "/v1/dead-letters/{id}", action: "deadletter.show", id: "getDeadLetter", summary: "Show a dead letter and its whole line", answer: readmodel.ShownLetter{},
		about: "Without the rights to see codes and customers, without the line."},
	{method: post, path: "/v1/dead-letters/retry", action: "deadletter.retry", id: "retryDeadLetter", summary: "Send a refused command line again", answer: Retried{},
		about: "Unchanged, which helps after an upgrade, or corrected. Lines keep their ids, so that a second retry has no second effect. " +
			"When all lines are accepted the dead letter is closed. Events cannot be retried."},
	{method: post, path: "/v1/dead-letters/discard", action: "deadletter.discard", id: "discardDeadLetters", summary: "Discard dead letters, or open them again",
		about: "Nothing is removed from the log or from the tables."},

	{method: get, path: "/v1/keys", action: "access.list", id: "listKeys", summary: "List keys"},
	{method: get, path: "/v1/keys/{key}", action: "access.show", id: "getKey", summary: "Show a key"},
	{method: post, path: "/v1/keys", action: "access.create", id: "createKey", summary: "Make a key", status: http.StatusCreated,
		about: "The secret is in this answer only. If the answer is lost, revoke the key and make another."},
	{method: post, path: "/v1/keys/{key}/rotate", action: "access.rotate", id: "rotateKey", summary: "Replace a key",
		about: "The new one has the same name and rights. The old one ends when the overlap is over."},
	{method: remove, path: "/v1/keys/{key}", action: "access.revoke", id: "revokeKey", summary: "Revoke a key",
		about: "In force at every server within a second; streams in progress end. By a name, all its keys, also one within its overlap. A key that was revoked stays so."},

	{method: get, path: "/v1/webhooks", action: "webhook.list", id: "listWebhooks", summary: "List webhooks"},
	{method: post, path: "/v1/webhooks", action: "webhook.create", id: "createWebhook", summary: "Create a webhook", status: http.StatusCreated, tagged: true,
		about: "Delivery starts with events from now on. The secret is in this answer only. If the answer is lost, delete the webhook and create another."},
	{method: get, path: "/v1/webhooks/{webhook}", action: "webhook.show", id: "getWebhook", summary: "Show a webhook, and how far it is", tagged: true},
	{method: http.MethodPatch, path: "/v1/webhooks/{webhook}", action: "webhook.update", id: "updateWebhook", summary: "Change settings of a webhook",
		match: mustMatch, tagged: true,
		about: "If-Match is required, so that two people do not overwrite each other: give the ETag, or * to overwrite. In force within a second."},
	{method: remove, path: "/v1/webhooks/{webhook}", action: "webhook.delete", id: "deleteWebhook", summary: "Delete a webhook", match: mayMatch,
		about: "Its position is removed; its dead letters stay."},
	{method: post, path: "/v1/webhooks/{webhook}/rotate", action: "webhook.rotate", id: "rotateWebhook", summary: "Replace the secret of a webhook", tagged: true,
		about: "For 24 hours requests are signed with both. The secret is in this answer only."},
	{method: post, path: "/v1/webhooks/{webhook}/pause", action: "webhook.pause", id: "pauseWebhook", summary: "Deliver nothing for now", match: mayMatch, tagged: true,
		about: "The position stays. Events that are older than max_age after the pause become dead letters."},
	{method: post, path: "/v1/webhooks/{webhook}/resume", action: "webhook.resume", id: "resumeWebhook", summary: "Deliver again", match: mayMatch, tagged: true,
		about: "Also to a webhook that a server disabled."},
	{method: post, path: "/v1/webhooks/{webhook}/replay", action: "webhook.replay", id: "replayWebhook", summary: "Deliver again what happened from a time on",
		match: mayMatch, tagged: true, about: "Under the same event ids, whatever the age of the events."},
	{method: post, path: "/v1/webhooks/{webhook}/test", action: "webhook.test", id: "testWebhook", summary: "Send a test request",
		about: "Of type webhook.test, once, also to a webhook that is paused. The answer comes with the result, or before five seconds are over."},
	{method: post, path: "/v1/webhooks/{webhook}/rehearse", action: "webhook.rehearse", id: "rehearseWebhook", summary: "Rehearse retries and dead letters",
		about: "The newest event is delivered again, as in earnest but within 40 seconds: answers of the first tries are ignored, and what fails for good is a dead letter. The result is last_rehearsal of the webhook."},
	{method: get, path: "/v1/webhooks/{webhook}/dead-letters", action: "webhook.deadletters", id: "listWebhookDeadLetters", summary: "List events that were given up"},
	{method: get, path: "/v1/webhooks/{webhook}/attempts", action: "webhook.attempts", id: "listWebhookAttempts", summary: "List the last requests to a webhook",
		about: "The last 100 that the server which delivers has made, newest first."},
	{method: get, path: "/v1/senders", action: "sender.list", id: "listSenders", summary: "List senders of reminders, and how far they are",
		about: "Each name on each lane, also of names of which no process runs."},
	{method: get, path: "/v1/senders/{sender}/dead-letters", action: "sender.deadletters", id: "listSenderDeadLetters", summary: "List reminders that a sender gave up",
		about: "Oldest first. pushsender retry delivers them again."},
	{method: post, path: "/v1/senders/{sender}/dead-letters/discard", action: "sender.discard", id: "discardSenderDeadLetters", summary: "Discard reminders that a sender gave up",
		about: "They are removed and not delivered."},
	{method: get, path: "/v1/log", action: "log.show", id: "getLog", summary: "Show the streams of the log",
		about: "Their sizes and replicas, and foreign messages at the end of event streams."},
	{method: post, path: "/v1/webhooks/{webhook}/dead-letters/retry", action: "webhook.retry", id: "retryWebhookDeadLetters", summary: "Deliver dead letters again, each once",
		about: "Under the same event ids, whatever the age of the events. What fails again stays. The answer comes with the result, or before five seconds are over."},

	{method: post, path: "/v1/rebuilds", action: "rebuild.start", id: "startRebuild", summary: "Rebuild the read tables from the log, or copy them", status: http.StatusAccepted,
		about: "The new tables are exchanged with those in use in one transaction. " + jobAbout},
	{method: post, path: "/v1/rebuilds/undo", action: "rebuild.undo", id: "undoRebuild", summary: "Exchange the tables before the last rebuild back", status: http.StatusAccepted, about: jobAbout},
	{method: post, path: "/v1/rebuilds/drop-previous", action: "rebuild.drop", id: "dropPreviousTables", summary: "Drop the tables before the last rebuild", status: http.StatusAccepted, about: jobAbout},
	{method: post, path: "/v1/verifications", action: "verify.start", id: "startVerification", summary: "Compare the read tables with the log", status: http.StatusAccepted,
		about: "Its result has the rows that differ. " + jobAbout},
	{method: post, path: "/v1/backups", action: "backup.start", id: "startBackup", summary: "Take a backup of the log", status: http.StatusAccepted,
		about: "Into a new directory of the server, which its result names. " + jobAbout},
	{method: get, path: "/v1/jobs", action: "job.list", id: "listJobs", summary: "List the last job of each kind, and of changes of coupons that of each key"},
	{method: get, path: "/v1/jobs/{id}", action: "job.show", id: "getJob", summary: "Show a job: its progress, or its result"},
	{method: post, path: "/v1/jobs/{id}/stop", action: "job.stop", id: "stopJob", summary: "Stop a job",
		about: "At whichever server it runs, by a key that may start it. The answer does not wait: within seconds the job has ended as stopped, or in another way before. " +
			"Its result, if it has one, is what it did until then. One that has ended stays as it is."},

	{method: get, path: "/v1/coupons", action: "coupon.list", id: "listCoupons", tag: "coupons", summary: "List coupons of a campaign, a customer or an order",
		about: "From the read tables, by campaign and number. " + partsAbout},
	{method: post, path: oneCampaign + "/coupons/void", action: "coupons.void", id: "voidCoupons", tag: "coupons", summary: "Void many coupons of a campaign", status: http.StatusAccepted,
		about: "Those that n, codes or a filter selects, or all. " + couponsAbout},
	{method: post, path: oneCampaign + "/coupons/extend", action: "coupons.extend", id: "extendCoupons", tag: "coupons", summary: "Change the expiry of many coupons of a campaign", status: http.StatusAccepted,
		about: "Those that n, codes or a filter selects, or all. " + couponsAbout},
	{method: post, path: oneCampaign + "/clone", action: "campaign.clone", id: "cloneCampaign", tag: "campaigns", summary: "Create a campaign with the settings of another one", status: http.StatusCreated, tagged: true,
		about: "But those that are given. Imported codes are not copied. A time that has passed is refused: give it."},
	{method: get, path: oneCampaign + "/diff", action: "campaign.diff", id: "diffCampaigns", tag: "campaigns", summary: "List the settings in which two campaigns differ"},
	{method: get, path: oneCampaign + "/changes", action: "campaign.changes", id: "listCampaignChanges", tag: "campaigns", summary: "List who changed a campaign, and what, newest first",
		about: "From the read tables, with what the log has of each."},
	{method: get, path: oneCampaign + "/statistics", action: "campaign.statistics", id: "listDays", tag: "campaigns", summary: "Count what happened in a campaign by day, newest first",
		about: "From the read tables. Days are of UTC."},
	{method: get, path: "/v1/due", action: "due.list", id: "listDue", summary: "List what falls due within an hour, and what is due and not done",
		about: "From the read tables."},
}

// partsAbout is what lists have in common whose filter no index serves.
const partsAbout = "Where no index has what is wanted, the list is read for a second: a page may be short, or empty, and have a next, and looked, which is how far " +
	"it has looked. A server reads two such pages at a time, one of a key, and one more of a key waits; further ones are 429 overloaded."

// couponsAbout is what changes of many coupons have in common.
const couponsAbout = "They are counted first: if more than most are selected nothing is changed, and with dry_run nothing is changed at all. After a failure " +
	"the same request within a day goes on where it was; no coupon is changed twice. The job waits up to a minute until the read tables have what the log had at its start; " +
	"behind in its result has how many messages they lacked even then. " + jobAbout

// jobAbout is what all actions that start a job have in common.
const jobAbout = "The answer is the job, which goes on whether its caller waits or not: see Location. It can be stopped. While one of the same kind runs it is refused (busy)."

// Retried is the result of a retry: of each line its outcome.
type Retried struct {
	State    string    `json:"state" doc:"Of the dead letter afterwards: retried if all lines were accepted."`
	Outcomes []Outcome `json:"outcomes" nullable:"false"`
}

// operate adds the routes of operators: each carries out an action of package ops.
func (a *API) operate() {
	for _, r := range actionRoutes {
		action := ops.Named(r.action)
		of := fieldRoute{match: r.match, tagged: r.tagged, fields: action.Fields, request: action.Request, answer: action.Answer,
			Route: Route{Method: r.method, Path: r.path, Action: r.action, ID: r.id, Tag: cmp.Or(r.tag, "operation"), Summary: r.summary, About: r.about,
				Operation: action.Operation, Status: r.status, Body: int64(action.Most), Reads: action.Reads}}
		if r.answer != nil {
			of.answer = reflect.TypeOf(r.answer)
		}
		of.do = func(ctx context.Context, given ops.Fields) (any, error) {
			return action.Do(ctx, a.Ops, author(ctx), given)
		}
		a.addFields(of)
	}
}
