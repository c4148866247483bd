package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
)

// Restart is what scrip with much in its hands costs: memory, the pauses of its snapshots, and the way back after an end.
//
//	start empty ── fill ── open loop, snapshots written meanwhile ── SIGTERM, start ── claims ── SIGKILL, start
//	  memory        memory        p99 with and without                 how long, same codes?      how long, same codes?
type Restart struct {
	Durability durability `json:"durability"`
	Settings   string     `json:"settings"`
	Load       string     `json:"load"`
	Rows       []Held     `json:"rows"`
}

// Held is one amount in scrip's hands.
type Held struct {
	Campaigns int `json:"campaigns"`
	Claims    int `json:"claims"`
	// FillRate is claims a second while filling up; Created is seconds that creating the campaigns took.
	FillRate float64 `json:"fill_rate"`
	Created  float64 `json:"created_s"`
	// Memory in bytes: what is resident of the server's own (file cache and PostgreSQL not) when it was just started
	// empty, when it has just been filled, and when it was started again with all that; garbage collected.
	Empty  int64 `json:"empty_bytes"`
	Filled int64 `json:"filled_bytes"`
	Again  int64 `json:"again_bytes"`
	// Rate of the open loop; With and Without are latencies while a snapshot was being written and while none was.
	Rate    float64 `json:"rate"`
	With    Latency `json:"with_snapshot"`
	Without Latency `json:"without_snapshot"`
	During  int     `json:"claims_during_snapshots"`
	// Stopping, ready again after it, and ready again after a kill, in seconds; Since is claims between start and kill.
	Stop      float64 `json:"stop_s"`
	AfterStop float64 `json:"ready_after_stop_s"`
	AfterKill float64 `json:"ready_after_kill_s"`
	Since     int     `json:"claims_before_kill"`
}

// heldSize is what a row asks for.
type heldSize struct{ campaigns, coupons int }

func parseHeld(text string) (size heldSize, err error) {
	campaigns, coupons, _ := strings.Cut(text, "x")
	size.campaigns, err = strconv.Atoi(campaigns)
	if err == nil {
		size.coupons, err = strconv.Atoi(coupons)
	}
	if err != nil || size.campaigns < 1 || size.coupons < 1 {
		return size, usageError{fmt.Errorf("--held %q must be campaigns x coupons claimed of each, such as 1x1000000", text)}
	}
	return size, nil
}

func restartCommand() *cobra.Command {
	var f flags
	var held []string
	cmd := &cobra.Command{
		Use: "restart", Short: "Measure memory, snapshots and restarts with much in hand", Args: cobra.NoArgs,
		Long: `Fill scrip up and measure what it holds in memory, how much claims wait while a snapshot is written, and how long a start
takes: after a clean stop, and after kill -9 with claims since the last snapshot. Claims made before are asked again after
each start and must get the same codes. Only scrip is started.`,
	}
	f.add(cmd.Flags(), string(always))
	f.callers, f.runs, f.limit = 1, 1, settleWithin
	cmd.Flags().Lookup("n").Usage = "claims between a start and the kill; 0 = 300,000"
	cmd.Flags().StringSliceVar(&held, "held", []string{"1x1000000", "100000x10"}, "campaigns `x` coupons claimed of each, with commas between")
	cmd.Flags().DurationVar(&f.beside, "beside", 30*time.Second, "how long the latency of claims is looked at; by then a snapshot has been due")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := f.readyForOne(cmd, "restarts are")
		if err != nil {
			return err
		}
		if f.n == 0 {
			f.n = 300_000
		}
		var sizes []heldSize
		for _, text := range held {
			size, err := parseHeld(text)
			if err != nil {
				return err
			}
			sizes = append(sizes, size)
		}
		report := newReport(f.base)
		report.Restart, err = restart(cmd.Context(), f.options, d, sizes)
		if err != nil {
			return err
		}
		return f.show(cmd, report, func(w io.Writer) error { return restartText(w, *report.Restart) })
	}
	return cmd
}

func restart(ctx context.Context, o options, d durability, sizes []heldSize) (*Restart, error) {
	r := &Restart{Durability: d, Load: loadAverage()}
	for _, size := range sizes {
		err := o.alone(ctx, d, func(st *stand) error {
			r.Settings = st.scrip.settings()
			held, err := o.hold(ctx, st, size)
			r.Rows = append(r.Rows, held)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("with %s campaigns of %s coupons: %w", thousands(float64(size.campaigns)), thousands(float64(size.coupons)), err)
		}
	}
	return r, nil
}

// openLoopShare is at which part of the speed of filling latency is looked at.
const openLoopShare = 0.3

// hold measures one row on a server of its own.
func (o options) hold(ctx context.Context, st *stand, size heldSize) (h Held, err error) {
	s := st.scrip
	h = Held{Campaigns: size.campaigns, Claims: size.campaigns * size.coupons, Since: o.n}
	say := func(format string, args ...any) { fmt.Fprintf(o.progress, "restart: "+format+"\n", args...) }
	if h.Empty, err = s.resident(ctx); err != nil {
		return h, err
	}
	p := rowPlan(size, h.Claims, o.seed)
	began := time.Now()
	if err := s.create(ctx, p); err != nil {
		return h, err
	}
	h.Created = time.Since(began).Seconds()
	say("%s campaigns created in %.1f s", thousands(float64(size.campaigns)), h.Created)
	p.created = true
	filled, err := o.window(ctx, st, p)
	if err != nil {
		return h, fmt.Errorf("filling up: %w", err)
	}
	h.FillRate = filled.Rate
	say("%s coupons claimed, %s a second", thousands(float64(h.Claims)), thousands(h.FillRate))
	if h.Filled, err = s.resident(ctx); err != nil {
		return h, err
	}

	h.Rate = openLoopShare * h.FillRate
	late := afterwards(p, "late", h.Claims, int(h.Rate*o.beside.Seconds()), o.seed)
	if err := o.besides(ctx, st, late, &h); err != nil {
		return h, fmt.Errorf("claims beside snapshots: %w", err)
	}
	say("p99 %s while a snapshot is written, %s otherwise", microText(h.With.P99), microText(h.Without.P99))

	began = time.Now()
	s.hangUp()
	s.proc.stop(time.Minute)
	h.Stop = time.Since(began).Seconds()
	if h.AfterStop, err = s.again(ctx, st.durability); err != nil {
		return h, err
	}
	say("stopped in %.1f s, ready after it in %.1f s", h.Stop, h.AfterStop)
	if h.Again, err = s.resident(ctx); err != nil {
		return h, err
	}
	if err := s.sameCodes(ctx, p); err != nil {
		return h, fmt.Errorf("after a clean stop: %w", err)
	}
	more := afterwards(p, "more", h.Claims+late.n, o.n, o.seed)
	if _, err := o.window(ctx, st, more); err != nil {
		return h, err
	}
	s.hangUp()
	_ = s.proc.cmd.Process.Kill()
	<-s.proc.gone
	if h.AfterKill, err = s.again(ctx, st.durability); err != nil {
		return h, err
	}
	say("ready after kill -9 in %.1f s", h.AfterKill)
	for _, claimed := range []*plan{p, late, more} {
		if err := s.sameCodes(ctx, claimed); err != nil {
			return h, fmt.Errorf("after kill -9: %w", err)
		}
	}
	return h, nil
}

// rowPlan claims every coupon of every campaign, one campaign after the other.
func rowPlan(size heldSize, claims int, seed uint64) *plan {
	w := growing
	w.campaigns = size.campaigns
	p := spread(w, "held", claims, size.coupons, seed)
	for i := range p.of {
		p.of[i] = uint32(i / size.coupons)
	}
	if size.campaigns == 1 {
		p.codes[0] = growthRoom
	}
	return p
}

// afterwards claims more of the one campaign, whose lane has all that is held; where there are many, of a new one beside them.
func afterwards(p *plan, id string, first, n int, seed uint64) *plan {
	next := newPlan(growing, id, n, seed)
	if len(p.names) == 1 {
		next.names, next.id, next.first, next.created = p.names, p.id, first, true
	}
	return next
}

// besides claims at an even pace and keeps latencies apart by whether a snapshot was being written.
func (o options) besides(ctx context.Context, st *stand, p *plan, h *Held) error {
	j, err := recipes[0].open(ctx, st, p, 1)
	if err != nil {
		return err
	}
	defer j.close()
	var writing atomic.Bool
	watched, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		tick := time.NewTicker(readyEvery)
		defer tick.Stop()
		for {
			select {
			case <-watched.Done():
				return
			case <-tick.C:
				if n, err := st.scrip.metric(watched, "scrip_lane_snapshot_writing"); err == nil {
					writing.Store(n > 0)
				}
			}
		}
	})
	with, without := newLatencies(), newLatencies()
	stream, began := j.stream, time.Now()
	var during atomic.Int64
	j.stream = func(ctx context.Context, i int, done func(answer)) error {
		meant := began.Add(time.Duration(float64(i) / h.Rate * float64(time.Second)))
		before := writing.Load()
		return stream(ctx, i, func(a answer) {
			into := without
			if before || writing.Load() {
				into = with
				during.Add(1)
			}
			into.record(i, time.Since(meant))
			done(a)
		})
	}
	d, err := drive(ctx, j, pace{n: p.n, limit: 2 * o.beside, rate: h.Rate})
	stop()
	watch.Wait()
	if err != nil {
		return err
	}
	if _, err := count(p, d.answers); err != nil {
		return fmt.Errorf("a wrong answer: %w", err)
	}
	p.created = true
	h.With, h.Without, h.During = with.result(), without.result(), int(during.Load())
	return nil
}

// again starts the server once more on the directory it had and says how long it took to be ready.
func (s *scripServer) again(ctx context.Context, d durability) (seconds float64, err error) {
	began := time.Now()
	err = s.start(ctx, filepath.Dir(s.proc.log), d)
	return time.Since(began).Seconds(), err
}

// asked is how many claims of a plan are asked once more after a start.
const asked = 1000

// sameCodes asks claims of a plan once more. Each must be a repeat.
func (s *scripServer) sameCodes(ctx context.Context, p *plan) error {
	for i := 0; i < p.n; i += max(1, p.n/asked) {
		o, err := s.sdk.Claim(ctx, p.campaign(i), p.customer(i))
		switch {
		case err != nil:
			return err
		case !o.Repeat || o.Code == "":
			return fmt.Errorf("%s had a coupon of %s and is answered %+v", p.customer(i), p.campaign(i), o)
		}
	}
	return nil
}

// resident is what the server's own process holds in memory after its garbage was collected, in bytes.
func (s *scripServer) resident(ctx context.Context) (int64, error) {
	for range 2 { // finalizers run after the first
		body, err := s.http(ctx, "/debug/pprof/heap?gc=1")
		if err != nil {
			return 0, err
		}
		_, err = io.Copy(io.Discard, body)
		if err = errors.Join(err, body.Close()); err != nil {
			return 0, err
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid()))
	if err != nil {
		return 0, nil //nolint:nilerr // no /proc: not known
	}
	return statusKiB(status, "RssAnon:") << 10, nil
}

// metric adds up a metric over its labels.
func (s *scripServer) metric(ctx context.Context, name string) (sum float64, err error) {
	byLane, err := s.metricByLane(ctx, name)
	for _, v := range byLane {
		sum += v
	}
	return sum, err
}

// metricByLane adds up a metric over its labels but the lane.
func (s *scripServer) metricByLane(ctx context.Context, name string) (map[string]float64, error) {
	body, err := s.http(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	byLane := map[string]float64{}
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), name+"{"); ok {
			var v float64
			labels, value, _ := strings.Cut(rest, "} ")
			if _, err := fmt.Sscan(value, &v); err != nil {
				return nil, fmt.Errorf("metric %s: %w", name, err)
			}
			_, lane, _ := strings.Cut(labels, `lane="`)
			lane, _, _ = strings.Cut(lane, `"`)
			byLane[lane] += v
		}
	}
	return byLane, lines.Err()
}

func (s *scripServer) http(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.desc.HTTPURL+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("%s answers %s", path, resp.Status), resp.Body.Close())
	}
	return resp.Body, nil
}

// restartText is the table for people.
func restartText(w io.Writer, r Restart) error {
	fmt.Fprintf(w, "restart: memory, snapshots and starts with much in hand\ndurability: %s\n%s\nload average before: %s\n", r.Durability.label(), r.Settings, r.Load)
	fmt.Fprintln(w, "memory is what the server's process holds itself after garbage collection; PostgreSQL's and the file cache are not in it")
	for _, h := range r.Rows {
		each := func(bytes int64) string {
			return fmt.Sprintf("%s (%.1f bytes a coupon)", mebibytes(bytes), float64(bytes-h.Empty)/float64(h.Claims))
		}
		fmt.Fprintf(w, "\n%s campaigns, %s coupons claimed\n", thousands(float64(h.Campaigns)), thousands(float64(h.Claims)))
		rows := [][]string{
			{"campaigns created", fmt.Sprintf("%.1f s", h.Created)},
			{"coupons claimed", thousands(h.FillRate) + " a second"},
			{"memory, empty", mebibytes(h.Empty)},
			{"memory, filled up", each(h.Filled)},
			{"memory, started again", each(h.Again)},
			{"open loop at", thousands(h.Rate) + " a second"},
			{"p50, p99, most without a snapshot", latencyText(h.Without)},
			{"p50, p99, most while one is written", latencyText(h.With) + ", of " + thousands(float64(h.During)) + " claims"},
			{"p99 with / without", ratioText(float64(h.With.P99) / float64(max(1, h.Without.P99)))},
			{"clean stop", fmt.Sprintf("%.1f s", h.Stop)},
			{"ready after it", fmt.Sprintf("%.1f s", h.AfterStop)},
			{"ready after kill -9", fmt.Sprintf("%.1f s, with %s claims since the start", h.AfterKill, thousands(float64(h.Since)))},
		}
		if err := columns(w, rows); err != nil {
			return err
		}
	}
	return nil
}

func latencyText(l Latency) string {
	return microText(l.P50) + ", " + microText(l.P99) + ", " + microText(l.Max)
}
