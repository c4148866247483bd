package tables

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Claims spread over many campaigns, after these were made: what one costs must grow little with their number.
//
// make-events/s and make-µs are of the campaigns, the other numbers of the claims. CPU is of this process and of
// PostgreSQL together, pg-µs of PostgreSQL alone.
func BenchmarkCampaigns(b *testing.B) {
	for _, of := range []struct {
		campaigns int
		zipf      bool
	}{{campaigns: 1}, {campaigns: 10_000, zipf: true}, {campaigns: 1_000_000}} {
		for _, size := range []int{500, 20_000} {
			b.Run(fmt.Sprintf("campaigns=%d/batch=%d", of.campaigns, size), func(b *testing.B) {
				w := &claimWriter{b: b, pool: open(b), r: new(reader), next: make([]uint32, of.campaigns)}
				w.warm()
				before := cpuOf(b, w.pool)
				w.create(1, of.campaigns)
				seconds := before.age()
				ours, postgres := before.since(b, w.pool)
				makeCPU := (ours + postgres) / float64(of.campaigns)

				source := rand.New(rand.NewPCG(1, 2))
				pick := func() int { return source.IntN(of.campaigns) }
				if of.zipf {
					z := rand.NewZipf(source, 1.1, 1, uint64(of.campaigns-1))
					pick = func() int { return int(z.Uint64()) }
				}
				before = cpuOf(b, w.pool)
				var making time.Duration // CPU time of the benchmark itself
				for b.Loop() {
					b.StopTimer()
					start := ownCPU(b)
					batch := w.batch(size, pick)
					making += ownCPU(b) - start
					b.StartTimer()
					commit(b, w.pool, w.r.batch(batch))
				}
				ours, postgres = before.since(b, w.pool)
				ours -= float64(making.Microseconds())
				events := float64(size) * float64(b.N)
				b.ReportMetric(events/b.Elapsed().Seconds(), "events/s")
				b.ReportMetric((ours+postgres)/events, "cpu-µs")
				b.ReportMetric(postgres/events, "pg-µs")
				b.ReportMetric(float64(of.campaigns)/seconds, "make-events/s")
				b.ReportMetric(makeCPU, "make-µs")
			})
		}
	}
}

// claimWriter writes a log of campaigns and claims.
type claimWriter struct {
	b        *testing.B
	pool     *pgxpool.Pool
	r        *reader
	next     []uint32 // claims so far, by campaign
	customer int
}

func campaignName(i int) string { return fmt.Sprintf("campaign-%07d", i) }

// warm has PostgreSQL plan all statements while the tables are nearly empty, as it is where scrip starts with few
// campaigns: a plan is kept for as long as the connection lives.
func (w *claimWriter) warm() {
	w.create(0, 1)
	for range 10 {
		w.claim(2, func() int { return 0 })
	}
}

// create makes the campaigns from one to the other, 20,000 at a time.
func (w *claimWriter) create(from, to int) {
	var lines []byte
	for i := from; i < to; i++ {
		e := wire.Event{Type: wire.CampaignCreated, Campaign: campaignName(i), At: minute(1), ID: fmt.Sprintf("0193a7b2-%08d", i), Number: uint32(i),
			Settings: wire.Settings{Codes: 1_000_000, PerCustomer: 1, MaxRedemptions: 1, ExpiresAt: minute(600_000)}}
		lines = append(e.AppendJSON(lines), '\n')
		if (i+1)%20_000 == 0 || i+1 == to {
			commit(w.b, w.pool, w.r.batch([]message{{at: minute(1), lines: lines}}))
			lines = nil
		}
	}
}

func (w *claimWriter) claim(size int, pick func() int) {
	commit(w.b, w.pool, w.r.batch(w.batch(size, pick)))
}

func (w *claimWriter) batch(size int, pick func() int) []message {
	var lines []byte
	for range size {
		i := pick()
		w.next[i]++
		w.customer++
		e := wire.Event{Type: wire.CouponClaimed, Campaign: campaignName(i), At: minute(2), ID: fmt.Sprintf("0193a7b2-%08d", w.customer), N: w.next[i],
			Code: fmt.Sprintf("%04X-%04X-%04X", w.customer*7919%65536, w.customer%65536, w.customer*31%65536), CustomerID: fmt.Sprintf("customer-%d", w.customer)}
		lines = append(e.AppendJSON(lines), '\n')
	}
	return []message{{at: minute(2), lines: lines}}
}

// spent is CPU time used up to a moment.
type spent struct {
	at             time.Time
	ours, postgres time.Duration
}

func cpuOf(b *testing.B, pool *pgxpool.Pool) spent {
	return spent{time.Now(), ownCPU(b), postgresCPU(b, pool)}
}

func (s spent) age() float64 { return time.Since(s.at).Seconds() }

// since is in µs.
func (s spent) since(b *testing.B, pool *pgxpool.Pool) (ours, postgres float64) {
	now := cpuOf(b, pool)
	return float64((now.ours - s.ours).Microseconds()), float64((now.postgres - s.postgres).Microseconds())
}

func ownCPU(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// postgresCPU adds up the processes of the cluster, as far as they are alive. 0 where there is no /proc.
func postgresCPU(b *testing.B, pool *pgxpool.Pool) (sum time.Duration) {
	b.Helper()
	var backend int
	if err := pool.QueryRow(context.Background(), "SELECT pg_backend_pid()").Scan(&backend); err != nil {
		b.Fatal(err)
	}
	postmaster, _ := processStat(fmt.Sprintf("/proc/%d/stat", backend))
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		b.Fatal(err)
	}
	for _, path := range all {
		if parent, used := processStat(path); parent == postmaster && parent != 0 {
			sum += used
		}
	}
	return sum
}

// processStat reads the parent of a process and the CPU time it has used, zeros if it is gone.
func processStat(path string) (parent int, used time.Duration) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0, 0
	}
	_, rest, _ := bytes.Cut(raw, []byte(") ")) // behind the name
	fields := bytes.Fields(rest)
	if len(fields) < 13 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(string(fields[1]))
	user, _ := strconv.Atoi(string(fields[11]))
	system, _ := strconv.Atoi(string(fields[12]))
	return parent, time.Duration(user+system) * 10 * time.Millisecond // ticks are hundredths on Linux
}
