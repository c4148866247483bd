// Package service is the NATS micro service "scrip": one JSON object in, one out, for whoever speaks NATS and does not
// want to know about lanes.
//
//	scrip.claim.<campaign> ──┐                              ┌─> scrip.lane.<lane>.cmd ──> outcome ──┐
//	scrip.redeem, … ─────────┼─ parse ─ find the lane ──────┤   (coalesced: many requests, few      │
//	scrip.campaign.create, … ┘          of name or code     │    messages; asked again under        ├──> reply
//	                                                        │    the same id until answered)        │
//	scrip.coupon.show, … ──── check ─ one lane, or all ─────┴─> scrip.lane.<lane>.query ────────────┘
//	                                                             + history from the read tables
//
// A reply to a command leaves when its event is durable. A refusal, `invalid` included, is an ordinary reply. A result
// that is not known in time is a micro error 503 whose body has the id: ask again with it.
//
// A refusal `not_durable` says that this request was not kept. It says nothing of an earlier request with the same id that
// was answered 503 or not at all: that one may have had its effect. Ask again until another answer comes.
//
// Replies go to inboxes only (see replyto): a request with another reply subject is dropped and counted. All endpoints
// together keep at most 256 MiB of requests that are not parsed yet.
//
// Owner: the endpoints' handlers run one after the other on nats.go's goroutines, so they only parse and hand in;
// replies are sent by the goroutine that reads outcomes. Queries, which wait, have a goroutine each, up to a limit.
// Any number of servers run the service; a queue group shares the requests among them.
//
// What a crash does: requests under way get no reply, whatever became of them. Who asks again with the same id, any
// server, gets the answer that was given, from the lane's state.
//
// The package also has the [Forwarder], which stands in for the subject mapping on a NATS server that lacks it.
package service
