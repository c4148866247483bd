package replay

import (
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/snappy"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

const (
	// groupRows and groupBytes (of lines) bound a row group: it is held in memory until it is written.
	groupRows  = 128 << 10
	groupBytes = 32 << 20
)

// parquetRow is Columns in Parquet. Numbers for which zero is a value are pointers; for others zero is null.
type parquetRow struct {
	Lane            int32  `parquet:"lane"`
	Sequence        int64  `parquet:"sequence"`
	Line            int32  `parquet:"line"`
	Type            string `parquet:"type,dict"`
	Campaign        string `parquet:"campaign,optional,dict"`
	At              int64  `parquet:"at,timestamp(microsecond)"`
	ID              string `parquet:"id,optional"`
	N               int64  `parquet:"n,optional"`
	Code            string `parquet:"code,optional"`
	CustomerID      string `parquet:"customer_id,optional"`
	OrderID         string `parquet:"order_id,optional"`
	ExpiresAt       int64  `parquet:"expires_at,optional,timestamp(microsecond)"`
	RedeemedCount   *int64 `parquet:"redeemed_count,optional"`
	Status          string `parquet:"status,optional,dict"`
	Reason          string `parquet:"reason,optional"`
	Kind            string `parquet:"kind,optional,dict"`
	DueAt           int64  `parquet:"due_at,optional,timestamp(microsecond)"`
	R               int64  `parquet:"r,optional"`
	Fired           *int64 `parquet:"fired,optional"`
	Dropped         *int64 `parquet:"dropped,optional"`
	Through         int64  `parquet:"through,optional,timestamp(microsecond)"`
	Count           *int64 `parquet:"count,optional"`
	CommandSequence int64  `parquet:"command_sequence,optional"`
	CommandLine     int64  `parquet:"command_line,optional"`
	Raw             string `parquet:"raw"`
}

type parquetEncoder struct {
	w     *parquet.GenericWriter[parquetRow]
	rows  []parquetRow
	group struct{ rows, bytes int } // of the row group not yet written
}

func newParquet(w io.Writer) *parquetEncoder {
	// Every reader supports Snappy and version 1 of data pages.
	return &parquetEncoder{w: parquet.NewGenericWriter[parquetRow](w, parquet.Compression(&snappy.Codec{}),
		parquet.DataPageVersion(1), parquet.SkipPageBounds("raw"), parquet.CreatedBy("scrip replay", "1", ""))}
}

func (p *parquetEncoder) encode(events []Event) error {
	p.rows = p.rows[:0]
	for i := range events {
		p.rows = append(p.rows, rowOf(&events[i]))
		p.group.bytes += len(events[i].Raw)
	}
	if _, err := p.w.Write(p.rows); err != nil {
		return err
	}
	if p.group.rows += len(p.rows); p.group.rows < groupRows && p.group.bytes < groupBytes {
		return nil
	}
	p.group.rows, p.group.bytes = 0, 0
	return p.w.Flush()
}

func (p *parquetEncoder) flush() error { return nil } // a row group per flush would be too small
func (p *parquetEncoder) close() error { return p.w.Close() }

func rowOf(e *Event) parquetRow {
	there := func(v uint64, is bool) *int64 {
		if !is {
			return nil
		}
		n := int64(v)
		return &n
	}
	micros := func(at wire.Instant) int64 { return int64(at) }
	redeemed, count, reminders := counts(e.Type)
	return parquetRow{
		Lane: int32(e.Lane), Sequence: int64(e.Position.Sequence), Line: int32(e.Position.Line),
		Type: e.Type.String(), Campaign: e.Campaign, At: micros(e.At), ID: e.ID,
		N: int64(e.N), Code: e.Code, CustomerID: e.CustomerID, OrderID: e.OrderID, ExpiresAt: micros(e.expires()),
		RedeemedCount: there(uint64(e.RedeemedCount), redeemed), Status: e.Status, Reason: e.Reason,
		Kind: e.Kind, DueAt: micros(e.DueAt), R: int64(e.R),
		Fired: there(e.Fired, reminders), Dropped: there(e.Dropped, reminders),
		Through: micros(e.Through), Count: there(e.Count, count),
		CommandSequence: int64(e.Event.Sequence), CommandLine: int64(e.Event.Line), Raw: string(e.Raw),
	}
}
