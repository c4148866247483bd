// Package api is HTTP /v1: claims and redemptions, campaigns, coupons, customers, reminders, codes, events, status, settings,
// dead letters, keys and webhooks; and its OpenAPI document.
//
//	                     ┌─ quick ───── claims, redemptions, rollbacks of the usual form ──> Lanes
//	                     ├─ Register ── huma: reads, validates, encodes ──┐        ┌─ Lanes ──── lanes
//	request ─> web.Gate ─┤                                                ├─> ... ─┼─ client ─── queries of the micro service
//	                     └─ stream ──── plain handlers that stream ───────┘        ├─ pgxpool ── read tables
//	                              │                                                └─ replay ─── event streams
//	                              └─> one OpenAPI 3.1 document, from the Go types: /v1/openapi.json
//
// Every route is a [Route] and names its access.Operation: permissions, the document and the tests go through the same list.
// Other packages add theirs with [Register].
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
