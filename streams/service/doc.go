// Package service is the NATS micro service "scrip": one JSON object in, one out, for programs that use NATS and do not know
// lanes.
//
//	scrip.claim.<campaign> ──┐                              ┌─> scrip.lane.<lane>.cmd ──> outcome ──┐
//	scrip.redeem, … ─────────┼─ parse ─ find the lane ──────┤   (batched: many requests, few        │
//	scrip.campaign.create, … ┘          of name or code     │    messages; retried under the        ├──> reply
//	                                                        │    same id until answered)            │
//	scrip.coupon.show, … ──── check ─ one lane, or all ─────┴─> scrip.lane.<lane>.query ────────────┘
//	                                                             + history from the read tables
//	scrip.access.create, … ── ops.Action ──────────────────────> stores, lanes, tables
//	scrip.sender.open, … ──── key and audience ─ push.Proxy ───> JetStream, for senders with a key
//
// A reply to a command is sent when its event is durable. A refusal, `invalid` included, is an ordinary reply. An unknown
// outcome is a micro error 503 whose body has the id: retry with it.
//
// A refusal `not_durable` means that this request was not stored. An earlier request with the same id that was answered 503
// or not at all may still have had its effect. Retry until another answer arrives.
//
// Replies go to inboxes only (see topology.MayReply): a request with another reply subject is dropped and counted. All endpoints
// together keep at most 256 MiB of requests that are not parsed yet.
//
// Owner: the endpoints' handlers run one after the other on nats.go's goroutines, so they only parse and enqueue; the
// goroutine that reads outcomes sends replies. Queries, which wait, have a goroutine each, up to a limit. Any number of
// servers run the service; a queue group distributes the requests among them.
//
// What a crash does: requests in flight get no reply, whatever their result. A retry with the same id, to any server, gets
// the first answer, from the lane's state.
//
// The package also has the [Forwarder], which replaces the subject mapping on a NATS server that lacks it.
package service
