// Package ops is every action of people, once: who may do it, what it does, its entry in the audit stream, and its refusals.
//
//	NATS  scrip.access.create ──┐            ┌─ may the caller? ─ read the request ─┐
//	HTTP  POST /v1/keys ────────┼─ Action.Do ┤                                      ├─> method of Ops ──> stores, lanes, tables
//	CLI   scrip access create ──┘ (by NATS)  └───────── answer, or *Refusal <───────┘
//
// A door decodes, calls and encodes. The same request gets the same answer through each of them, and the same refusal with the
// same text. Commands of shops and queries of lanes are not here: they are many, and have a way of their own (package service).
//
// To add an action: a method of Ops with a request and an answer of its own, a row in [Actions], the name of the row among the
// endpoints of its access.Operation, a row in the routes of cmd/internal/api, and a line in CONTRACT.md.
//
// Owner: none. Methods may be called by several goroutines at once.
//
// What a crash does: a change is stored before its entry in the audit stream, and answered after that. A crash between the two
// leaves a change without an entry; its caller got no answer, and reads what is there. A retry under the same id is answered so:
// what was cut off is not done again, but the start of a job, which finds its job by a name that is remembered with the request.
package ops
