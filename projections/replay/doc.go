// Package replay reads the event streams again, for whoever has a new question about them. It is a plain reader: it
// changes nothing in the log, and needs nobody's leave but NATS'.
//
//	SCRIP_EVT_0 ─┐            ┌─ Stream, File        NDJSON, CSV, Parquet
//	SCRIP_EVT_1 ─┼─> Run ─────┼─ NamedFile           NDJSON, CSV, with a state file beside it
//	SCRIP_EVT_… ─┘  filter    ├─ Postgres            a schema of its own: typed rows, a SQL file, or Go
//	                          └─ Func                anything
//
// Lanes are read one after another, each in its order, to where it ended when Run began; the same log gives the same
// output. To follow, Run then reads all lanes as events arrive. Memory is bounded by one batch and what one Feed holds.
//
// Owner: the caller of Run. A Sink belongs to one Run and is called by its goroutine.
//
// What a crash does:
//
//	File, Stream   a half file never stands under its name: it is written beside it and renamed when it is whole
//	NamedFile      the state says how long the file was when it was last safe; the next run cuts it there and goes on
//	Postgres       rows and checkpoint are one transaction; the next run goes on at the checkpoint
//
// A place is recorded as (log UUID, sequence, digest of that message) and verified before going on: a log that was
// restored, or lost its tail, is noticed and refused.
package replay
