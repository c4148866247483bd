package topology

// Growth is a row of the table of what grows: a stream, and what keeps it and one key's part of it small. A configuration without a
// bound needs a reason.
type Growth struct {
	// Stream is its name, or the prefix of those of lanes.
	Stream string
	// By is what makes it grow.
	By string
	// Full is what happens at the bound of the stream's configuration; "" = it has none.
	Full string
	// Unbounded is why it has none.
	Unbounded string
	// Share is what bounds the part of one key.
	Share string
}

// asLog is of the log itself: nothing of it may be refused or removed once its command was accepted.
const asLog = "it is the log: what a command changed is kept for ever"

// Grows is the table.
var Grows = []Growth{
	{Stream: CmdStreamPrefix, By: "commands", Full: "refused as not_durable; it is purged of what was decided",
		Share: "the rate of a key; one without a rate is trusted to send as much as it likes"},
	{Stream: EvtStreamPrefix, By: "commands with an effect", Unbounded: asLog,
		Share: "the rate of a key, the coupons of campaigns, and their pending reminders"},
	{Stream: RmdStreamPrefix, By: "reminders that are due", Unbounded: asLog, Share: "the pending reminders of campaigns"},
	{Stream: PushOutStream, By: "reminders that were held back", Unbounded: asLog, Share: "the pending reminders of campaigns"},
	{Stream: AuditStream, By: "acts of people", Unbounded: "what people did is kept for ever", Share: "what a key may have recorded, see package audit"},
	{Stream: SettingsStream, By: "changes of settings", Unbounded: "a change must be possible at any time, and its history is kept for ever",
		Share: "operators of the whole log alone; what a key may have recorded, and 16 KiB a change"},
	{Stream: AccessStream, By: "changes of keys", Unbounded: "a key must be revocable at any time, and its history is kept for ever",
		Share: "operators of the whole log alone; what a key may have recorded, and 16 KiB a change"},
	{Stream: WebhooksStream, By: "changes of webhooks", Unbounded: "a webhook must be endable at any time, and its history is kept for ever",
		Share: "operators of the whole log alone; what a key may have recorded, and 16 KiB a change"},
	{Stream: OnceStream, By: "requests with an Idempotency-Key, tokens", Full: "refused as overloaded", Share: "OnceShare at each server"},
	{Stream: JobsStream, By: "long actions", Full: "refused as overloaded", Share: "one value for a key, replaced by its next one"},
	{Stream: OptOutStream, By: "customers who want no reminders", Full: "refused as overloaded", Share: "what a key may have recorded"},
	{Stream: PushWaitStream, By: "reminders that wait", Full: "refused; the sender gives the reminder back, which is delivered again",
		Share: "what waits is of the reminders that were handed out to the audience of the key"},
	{Stream: PushDeadStream, By: "reminders that were given up", Full: "refused; the sender gives the reminder back, which is tried again",
		Share: "a letter for a message of the audience of the key, replaced by its next one"},
	{Stream: PushStream, By: "audiences and webhooks", Unbounded: "one value for an audience or a webhook and a lane; a sender that cannot store it stops",
		Share: "one audience for a key"},
	{Stream: StateStream, By: "keys and lanes", Unbounded: "one value for a lane and for a key; a server that cannot store it stops",
		Share: "one value for a key, replaced at most once a minute"},
	{Stream: LeaseStream, By: "servers and lanes", Unbounded: "one value for a lane and for a server; without it no server owns a lane",
		Share: "no key writes there"},
	{Stream: SnapStream, By: "servers", Unbounded: "a snapshot or two for a lane, as large as its campaigns; older ones are removed",
		Share: "no key writes there"},
}
