// Package alert has the alerts of scrip: each is one row of a table, with its condition as data.
//
//	         ┌──> File ──> docker/prometheus/alerts.yaml, for a Prometheus that has the metrics of all servers
//	Rules ───┤
//	         └──> Judge ──> the console and GET /v1/overview, by the metrics of one server
//
// A condition is of one of a few shapes: a gauge above a bound, a counter that grew, and so on. A shape has two readings, its
// PromQL and its judgement of a history of metrics, so a row cannot mean one thing there and another here.
//
// A new shape is for what no shape can express; a row that one server cannot judge is [Elsewhere].
//
// Owner: the caller of a Judge, which calls it under one lock.
//
// What a crash does: the history is lost. The next Judge counts what grows from its own start on.
package alert
