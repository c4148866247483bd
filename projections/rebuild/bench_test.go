package rebuild

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// size is how many coupons the log of the benchmarks has; SCRIP_BENCH_COUPONS changes it.
func size(b *testing.B) int {
	n, err := strconv.Atoi(os.Getenv("SCRIP_BENCH_COUPONS"))
	if err != nil {
		return 200_000
	}
	return n
}

// claims writes a log of claims, half of them to each lane, in messages of 500.
func (r *rig) claims(b *testing.B, coupons int) {
	b.Helper()
	const perMessage = 500
	at := wire.At(r.Clock)
	for lane := range lanes {
		campaign := fmt.Sprintf("c%d", lane)
		r.Write(lane, projtest.Created(campaign, lane, `,"expires_at":"2027-01-01T00:00:00Z"`))
		var payload []byte
		for n := 1; n <= coupons/lanes; n++ {
			payload = append(projtest.Claimed(campaign, uint32(n), at).AppendJSON(payload), '\n')
			if n%perMessage == 0 || n == coupons/lanes {
				header := r.Header(lane)
				r.Covered[lane]++
				if _, err := r.JS.PublishMsgAsync(&nats.Msg{Subject: topology.Evt(lane), Header: header, Data: bytes.Clone(payload)}); err != nil {
					b.Fatal(err)
				}
				payload = payload[:0]
			}
		}
	}
	<-r.JS.PublishAsyncComplete()
}

// A log of claims, loaded, indexed, compared with empty tables and exchanged.
func BenchmarkRebuild(b *testing.B) {
	r := newRig(b)
	n := size(b)
	r.claims(b, n)
	for b.Loop() {
		s := r.open(Options{Limits: fill.Limits{Lines: 20_000}})
		got, err := s.Rebuild(b.Context())
		s.Close()
		if err != nil || got.Events < uint64(n) {
			b.Fatalf("%+v: %v", got, err)
		}
		b.ReportMetric(float64(got.Events)/got.Took.Seconds(), "events/s")
		b.ReportMetric(got.Loaded.Seconds(), "s-loading")
		b.ReportMetric(got.Indexed.Seconds(), "s-indexing")
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.Sys)/(1<<20), "MiB")
	}
}

// The same rows by COPY alone, prepared beforehand, by one connection per lane: into tables without indexes, which are
// made then.
func BenchmarkRawCopy(b *testing.B) {
	r := newRig(b)
	n := size(b)
	s := r.open(Options{})
	defer s.Close()
	data := make([][]byte, lanes)
	for lane := range data {
		data[lane] = copyOf(fmt.Sprintf("c%d", lane), n/lanes)
	}
	for b.Loop() {
		b.StopTimer()
		sh, err := s.newShadow(b.Context(), ScratchSchema, selection{}, false)
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		began := time.Now()
		g, ctx := errgroup.WithContext(b.Context())
		for _, rows := range data {
			g.Go(func() error {
				return pgx.BeginFunc(ctx, r.Pool, func(tx pgx.Tx) error {
					_, err := tx.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(rows), "COPY "+ScratchSchema+
						".coupon_row (n, claimed_at, redeemed_count, campaign, code, customer_id, claimed_place) FROM STDIN (FORMAT binary)")
					return err
				})
			})
		}
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
		loaded := time.Since(began)
		if err := sh.finish(b.Context(), true); err != nil {
			b.Fatal(err)
		}
		took := time.Since(began)
		b.ReportMetric(float64(n)/took.Seconds(), "rows/s")
		b.ReportMetric(loaded.Seconds(), "s-loading")
		b.ReportMetric((took - loaded).Seconds(), "s-indexing")
		b.StopTimer()
		if err := s.discard(b.Context(), ScratchSchema); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func copyOf(campaign string, coupons int) []byte {
	out := []byte("PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	text := func(s string) {
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(s))), s...)
	}
	number := func(v int64) {
		out = binary.BigEndian.AppendUint64(append(out, 0, 0, 0, 8), uint64(v))
	}
	for n := 1; n <= coupons; n++ {
		e := projtest.Claimed(campaign, uint32(n), 1)
		out = append(out, 0, 7)
		number(int64(n))
		number(1)
		number(0)
		text(campaign)
		text(e.Code)
		text(e.CustomerID)
		number(int64(n))
	}
	return append(out, 0xff, 0xff)
}
