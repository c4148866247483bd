package replay

import (
	"strconv"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Column is one typed column of an event as CSV, Parquet and PostgreSQL have it, in this order.
type Column struct{ Name, SQL string }

// Columns of an event; empty (NULL) where an event has no such thing.
//
//	lane, sequence, line        its place in the log
//	expires_at                  of the coupon, if its own; of campaign.created and .updated, the campaign's
//	command_sequence, …_line    of the command that a command.rejected tells of
//	raw                         the whole line
var Columns = []Column{
	{"lane", "integer NOT NULL"}, {"sequence", "bigint NOT NULL"}, {"line", "integer NOT NULL"},
	{"type", "text NOT NULL"}, {"campaign", "text"}, {"at", "timestamptz NOT NULL"}, {"id", "text"},
	{"n", "bigint"}, {"code", "text"}, {"customer_id", "text"}, {"order_id", "text"}, {"expires_at", "timestamptz"},
	{"redeemed_count", "bigint"}, {"status", "text"}, {"reason", "text"},
	{"kind", "text"}, {"due_at", "timestamptz"}, {"r", "bigint"}, {"fired", "bigint"}, {"dropped", "bigint"},
	{"through", "timestamptz"}, {"count", "bigint"}, {"command_sequence", "bigint"}, {"command_line", "bigint"},
	{"raw", "jsonb NOT NULL"},
}

// columnWriter takes the values of one event, column by column.
type columnWriter interface {
	// small and number are integers; absent ones come as null.
	small(int32)
	number(uint64)
	text(string)
	instant(wire.Instant)
	null()
	raw([]byte)
}

// columnsOf hands the columns of an event to w.
func columnsOf(e *Event, w columnWriter) {
	number := func(v uint64, there bool) {
		if there {
			w.number(v)
		} else {
			w.null()
		}
	}
	text := func(s string) {
		if s == "" {
			w.null()
		} else {
			w.text(s)
		}
	}
	instant := func(at wire.Instant) {
		if at == 0 {
			w.null()
		} else {
			w.instant(at)
		}
	}
	redeemed, count, reminders := counts(e.Type)
	w.small(int32(e.Lane))
	w.number(e.Place.Sequence)
	w.small(int32(e.Place.Line))
	w.text(e.Type.String())
	text(e.Campaign)
	w.instant(e.At)
	text(e.ID)
	number(uint64(e.N), e.N != 0)
	text(e.Code)
	text(e.CustomerID)
	text(e.OrderID)
	instant(e.expires())
	number(uint64(e.RedeemedCount), redeemed)
	text(e.Status)
	text(e.Reason)
	text(e.Kind)
	instant(e.DueAt)
	number(e.R, e.R != 0)
	number(e.Fired, reminders)
	number(e.Dropped, reminders)
	instant(e.Through)
	number(e.Count, count || e.Count != 0)
	number(e.Event.Sequence, e.Event.Sequence != 0)
	number(uint64(e.Event.Line), e.Event.Line != 0)
	w.raw(e.Raw)
}

// csvRow writes an event as CSV fields.
type csvRow struct {
	fields   []string
	harmless bool // texts are written as Harmless makes them
}

func (r *csvRow) add(s string)            { r.fields = append(r.fields, s) }
func (r *csvRow) small(v int32)           { r.add(strconv.Itoa(int(v))) }
func (r *csvRow) number(v uint64)         { r.add(strconv.FormatUint(v, 10)) }
func (r *csvRow) text(s string)           { r.add(r.field(s)) }
func (r *csvRow) instant(at wire.Instant) { r.add(at.String()) }
func (r *csvRow) null()                   { r.add("") }
func (r *csvRow) raw(line []byte)         { r.add(r.field(string(line))) }

func (r *csvRow) field(s string) string {
	if r.harmless {
		return Harmless(s)
	}
	return s
}
