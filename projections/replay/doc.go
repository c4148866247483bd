// Package replay reads the event streams from an earlier position into files or tables. It changes nothing in the log,
// and needs only the right to read from NATS.
//
//	SCRIP_EVT_0 ─┐            ┌─ Stream, File        NDJSON, CSV, Parquet
//	SCRIP_EVT_1 ─┼─> Run ─────┼─ NamedFile           NDJSON, CSV, with a state file beside it
//	             │            ├─ Partitions          a directory of Parquet files by day
//	SCRIP_EVT_… ─┘  filter    ├─ Postgres            a schema of its own: typed rows, a SQL file, or Go
//	                          └─ a Sink of yours     anything
//
// With Options.Remote the events come from GET /v1/events, with a key.
//
// Run reads one lane after another, each in order, to the end that it had when Run started; the same log gives the same
// output. With Follow, Run then reads all lanes as events arrive. Memory is bounded by one batch and, per lane that is
// read at once, one reader's queue.
//
// Owner: the caller of Run. A Sink belongs to one Run, which makes one call at a time.
//
// What a crash does:
//
//	File, Stream   an incomplete file never has the target's name: a partial file is renamed when it is complete
//	NamedFile      the state has the length at the last fsync; the next run truncates the file to it and continues
//	Partitions     files that the state does not cover are removed by the next run, which writes their events again
//	Postgres       rows and checkpoint are one transaction; the next run continues at the checkpoint
//
// A position is recorded as (log UUID, sequence, digest of that message) and verified before a run continues there: if
// the log was restored, or lost its tail, Run returns an error.
package replay
