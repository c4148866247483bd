// Package api is HTTP /v1: claims and redemptions, campaigns, coupons, customers, reminders, codes, events, status, settings,
// dead letters, keys and webhooks; and its OpenAPI document.
//
//	                     ┌─ addCommand ─ each request is a wire.Command ───> Lanes ──> lanes
//	request ─> web.Gate ─┼─ addFields ── its fields are those of a type ─┐          ┌─ client ── queries of the micro service
//	                     └─ stream ───── bodies that are no values ──────┴─> ... ───┼─ pgxpool ─ read tables
//	                              │                                                 ├─ ops ───── actions of operators
//	                              └─> one OpenAPI 3.1 document: /v1/openapi.json    └─ replay ── event streams
//
// The document follows from the tables of commands, answers, events and fields in domain/wire, and from the Go types of requests and
// answers; huma makes their schemas. Examples are in examples.json.
//
// Every route is a [Route] and names its access.Operation: permissions, the document and the tests go through the same list.
//
// Errors are web.Problem, also those of validation: 400 for what cannot be read (no JSON, an unknown field or parameter), 422
// for a value that is not valid.
//
// Owner: an API has no goroutine; each request runs in its own. Events are followed until the client goes, its key is revoked,
// or the server stops.
//
// What a crash does: clients in flight get no answer. Commands are repeated under the same Idempotency-Key, an import of codes
// by sending the same file again, events by the last cursor.
package api
