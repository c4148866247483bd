package sample

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/cmd/internal/alert"
	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/projections/projector"
)

const (
	// every is the time between two samples, and kept how many there are.
	every = time.Second
	kept  = 600
	// diskFor is the shortest time in which the growth of the disk is measured.
	diskFor = time.Minute
)

// Sample is the state of a log at an instant. Rates are per second, of the whole log, since the sample before.
type Sample struct {
	At          time.Time `json:"at"`
	Claims      float64   `json:"claims" doc:"Coupons claimed a second."`
	Redemptions float64   `json:"redemptions" doc:"Redemptions a second."`
	Refusals    float64   `json:"refusals" doc:"Commands refused a second."`
	// Refused are the refusals by reason.
	Refused map[string]float64 `json:"refused" doc:"By reason."`
	// OldestDue is how long the oldest due work has waited, in seconds, and Waiting how many customers of due reminders do.
	OldestDue float64 `json:"oldest_due_seconds" doc:"How long the oldest due expiry or reminder has waited."`
	Waiting   int     `json:"waiting" doc:"Customers whose reminder is due and not sent."`
	// Lag is of the lane whose tables are the latest, and Behind the messages of all lanes that tables lack. Lag is -1 if no server
	// knows: there is no projector, or none that fills them.
	Lag    float64 `json:"tables_lag_seconds" doc:"Of the lane whose tables are the latest; -1 while no server fills them."`
	Behind *uint64 `json:"tables_behind,omitempty" doc:"Messages that the tables lack. Absent: not known of some lane, since no server fills its tables, or PostgreSQL or NATS is unreachable."`
	// DiskLeft is in bytes, 0 = not known.
	DiskLeft uint64   `json:"disk_left,omitempty" doc:"Bytes left where this server stores log, tables and its other files: the least."`
	left     []uint64 // of each disk
	Error    string   `json:"error,omitempty" doc:"Why there are no numbers."`
}

// Options of a Sampler.
type Options struct {
	// Conn requests the reports.
	Conn *nats.Conn
	// Lanes is how many the log has.
	Lanes int
	// Disks are those on which this server stores something, always as many; nil = none.
	Disks func() []Disk
	// Metrics are those of this server, for alerts.
	Metrics prometheus.Gatherer
	Logger  *slog.Logger
}

// Sampler takes samples.
type Sampler struct {
	Options
	lanes map[int]counted // of the sample before
	// nowhere is of how many lanes no server does the work, for alerts.
	nowhere map[string]int
	known   []string // servers that replied to it

	mu    sync.Mutex // guards the fields below
	ring  []Sample
	judge *alert.Judge
}

// Disk is a disk on which a server stores something.
type Disk struct {
	Place string // what it stores there: data, log or tables
	Dev   uint64 // the same for places on one file system
	// Free is what the server may still write, of Size, in bytes. Size 0 = not known.
	Free, Size uint64
}

// counted are a lane's counters at an instant, by its owner.
type counted struct {
	server string
	at     time.Time
	counts map[string]uint64
}

// New returns a Sampler.
func New(o Options) *Sampler {
	return &Sampler{Options: o, lanes: map[int]counted{}, judge: alert.NewJudge(time.Now())}
}

// Run takes samples until ctx ends.
func (s *Sampler) Run(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		reports, err := status.Reports(ctx, s.Conn, s.known)
		if ctx.Err() != nil {
			return nil
		}
		s.Take(time.Now(), reports, err)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Take adds a sample of reports, and judges the alerts if it is time. Run calls it.
func (s *Sampler) Take(now time.Time, reports []status.Report, err error) {
	s.add(s.sample(now, reports, err))
	if s.Metrics == nil || !s.judge.Due(now) {
		return
	}
	families, err := s.Metrics.Gather()
	if err != nil {
		s.Logger.Debug("metrics cannot be gathered for alerts", "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.judge.Look(now, families, s.nowhere)
}

// sample makes a sample of reports.
func (s *Sampler) sample(now time.Time, reports []status.Report, err error) Sample {
	out := Sample{At: now.UTC().Truncate(time.Millisecond), Refused: map[string]float64{}}
	switch {
	case err != nil:
		out.Error = err.Error()
	case len(reports) == 0:
		out.Error = "no server replies; is NATS up?"
	}
	s.known, s.nowhere = s.known[:0], map[string]int{alert.Owned: s.Lanes}
	for _, r := range reports {
		s.known = append(s.known, r.Server)
		for _, l := range r.Lanes() {
			s.rates(&out, now, r.Server, &l)
		}
	}
	out.Lag = -1
	behind, follow := uint64(0), 0
	for _, p := range status.Tables(reports) {
		if p.State.Works() {
			out.Lag = max(out.Lag, p.LagSeconds)
		}
		if p.Behind != nil {
			behind, follow = behind+*p.Behind, follow+1
		}
		if p.State != projector.Following {
			s.nowhere[alert.Followed]++
		}
	}
	if follow == s.Lanes {
		out.Behind = &behind
	}
	if s.Disks != nil {
		for _, d := range s.Disks() {
			out.left = append(out.left, d.Free)
			if d.Size > 0 {
				out.DiskLeft = min(d.Free, cmp.Or(out.DiskLeft, d.Free))
			}
		}
	}
	return out
}

// rates adds those of a lane that the server owns. A lane that has moved, or whose owner has started again, has none for one sample.
func (s *Sampler) rates(out *Sample, now time.Time, server string, l *status.LaneReadiness) {
	if !l.State.Owns() || l.Lane < 0 || l.Lane >= s.Lanes {
		return
	}
	s.nowhere[alert.Owned]--
	if b := l.Backlog; b != nil {
		out.OldestDue = max(out.OldestDue, max(b.High.OldestDue, b.Normal.OldestDue, b.Low.OldestDue).Seconds())
		out.Waiting += b.High.Waiting + b.Normal.Waiting + b.Low.Waiting
	}
	before := s.lanes[l.Lane]
	s.lanes[l.Lane] = counted{server, now, l.Outcomes}
	span := now.Sub(before.at).Seconds()
	if before.server != server || span <= 0 || before.at.IsZero() {
		return
	}
	for kind, n := range l.Outcomes {
		if n < before.counts[kind] {
			return // it has started again
		}
		rate := float64(n-before.counts[kind]) / span
		command, result, _ := strings.Cut(kind, " ")
		switch {
		case result == "repeat" || rate == 0:
		case result != "ok":
			out.Refusals += rate
			out.Refused[result] += rate
		case command == "claim":
			out.Claims += rate
		case command == "redeem":
			out.Redemptions += rate
		}
	}
}

func (s *Sampler) add(one Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ring) == kept {
		s.ring = append(s.ring[:0], s.ring[1:]...)
	}
	s.ring = append(s.ring, one)
}

// Recent returns the samples of the last ten minutes, oldest first.
func (s *Sampler) Recent() []Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Sample(nil), s.ring...)
}

// Overview is what is to be seen at a glance.
type Overview struct {
	Sample
	// Minutes are the samples before it, one for each ten seconds.
	Recent []Sample      `json:"recent,omitempty" nullable:"false" doc:"One of each ten seconds of the last ten minutes, oldest first."`
	Alerts []alert.Alert `json:"alerts" nullable:"false" doc:"Those of docker/prometheus/alerts.yaml that would fire now, by the metrics of this server."`
	// FullIn is after how many hours the first disk is full at the rate of the last minutes; 0 = none fills, or it is not known.
	FullIn float64 `json:"disk_full_in_hours,omitempty"`
}

// Overview returns the last sample and what follows from the ring.
func (s *Sampler) Overview(now time.Time) Overview {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Overview{Alerts: s.judge.Alerts(now), Sample: Sample{Lag: -1, Refused: map[string]float64{}}}
	if len(s.ring) == 0 {
		out.Error = "the server is starting"
		return out
	}
	out.Sample = s.ring[len(s.ring)-1]
	for i := len(s.ring) % 10; i < len(s.ring); i += 10 {
		out.Recent = append(out.Recent, mean(s.ring[i:min(i+10, len(s.ring))]))
	}
	first := s.ring[0]
	for i, left := range out.left {
		if span := out.At.Sub(first.At); span >= diskFor && first.left[i] > left {
			in := float64(left) / float64(first.left[i]-left) * span.Hours()
			out.FullIn = min(in, cmp.Or(out.FullIn, in))
		}
	}
	return out
}

// mean is a sample for several: their mean rates, and the worst of the others.
func mean(of []Sample) (m Sample) {
	m = of[len(of)-1]
	m.Claims, m.Redemptions, m.Refusals, m.Refused = 0, 0, 0, map[string]float64{}
	for _, one := range of {
		n := float64(len(of))
		m.Claims, m.Redemptions, m.Refusals = m.Claims+one.Claims/n, m.Redemptions+one.Redemptions/n, m.Refusals+one.Refusals/n
		for reason, rate := range one.Refused {
			m.Refused[reason] += rate / n
		}
		m.OldestDue, m.Lag = max(m.OldestDue, one.OldestDue), max(m.Lag, one.Lag)
	}
	return m
}
