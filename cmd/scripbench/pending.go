package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Pending is what reminders cost that are not due yet: memory, disk, and the way back after an end.
//
//	start empty ── subscribe ── known? ── SIGTERM, start ── some more ── SIGKILL, start
//	  memory         rate       memory    how long, all there?          how long, all there?
type Pending struct {
	Durability durability       `json:"durability"`
	N          int              `json:"n"`
	Campaigns  int              `json:"campaigns"`
	Load       string           `json:"load"`
	Scrip      *ScripPending    `json:"scrip,omitempty"`
	Peers      []PendingAtPeers `json:"peers,omitempty"`
}

// ScripPending is scrip with many reminders in its hands.
type ScripPending struct {
	Settings string `json:"settings"`
	// FillRate is subscriptions a second until the schedulers knew of all.
	FillRate float64 `json:"fill_rate"`
	// Memory in bytes, after garbage collection: the process' own, empty, with all, and started again with all.
	Empty  int64 `json:"empty_bytes"`
	Filled int64 `json:"filled_bytes"`
	Again  int64 `json:"again_bytes"`
	// Heap by who made it, in bytes: a sample.
	Heap Heap `json:"heap"`
	// Disk in bytes: event streams, and all else in the data directory but the command streams (snapshots, indexes).
	Events int64 `json:"events_bytes"`
	Disk   int64 `json:"other_disk_bytes"`
	// Covered is how many seconds after the last subscription snapshots covered what the lanes hold.
	Covered float64 `json:"covered_s"`
	// Seconds: stopping; ready, and schedulers knowing of all, after it and after a kill with Since more subscriptions.
	Stop           float64 `json:"stop_s"`
	ReadyAfterStop float64 `json:"ready_after_stop_s"`
	KnownAfterStop float64 `json:"known_after_stop_s"`
	ReadyAfterKill float64 `json:"ready_after_kill_s"`
	KnownAfterKill float64 `json:"known_after_kill_s"`
	Since          int     `json:"before_kill"`
}

// PendingAtPeers is what a peer needs for fewer of them.
type PendingAtPeers struct {
	Name     string `json:"name"`
	Recipe   string `json:"recipe"`
	Settings string `json:"settings"`
	N        int    `json:"n"`
	// Bytes in memory, or on disk where Disk says so; table and indexes.
	Bytes int64 `json:"bytes"`
	Disk  bool  `json:"disk,omitempty"`
	// Seconds of starting again from the log of commands, and from a snapshot; 0 = not measured.
	FromLog      float64 `json:"from_log_s,omitempty"`
	FromSnapshot float64 `json:"from_snapshot_s,omitempty"`
	// Ratio is how many times as much memory as scrip each takes.
	Ratio float64 `json:"times_scrip_bytes,omitempty"`
}

// pendingPeer is a peer that keeps reminders until they are due.
type pendingPeer struct {
	recipe
	most int
	hold func(ctx context.Context, o options, st *stand, u subscriptions, r *PendingAtPeers) error
}

var pendingPeers = []pendingPeer{
	{
		recipe: recipe{name: "redis-zset", says: "sorted sets by due instant, member campaign:customer", server: func(s *stand) server { return s.redis }},
		most:   5_000_000, hold: holdRedis,
	},
	{
		recipe: recipe{name: "asynq", says: "a scheduled task for each", server: func(s *stand) server { return s.redis }},
		most:   200_000, hold: holdAsynq,
	},
	{
		recipe: recipe{name: "river", says: "a scheduled job for each; on disk", server: func(s *stand) server { return s.postgres }},
		most:   500_000, hold: holdRiver,
	},
}

const (
	// pendingRoles leave the read tables out: they are measured by tables.
	pendingRoles = "lanes,scheduler,api"
	// pendingStop is how long a server with much in its hands may take to stop and to start.
	pendingStop, pendingStart = 5 * time.Minute, 30 * time.Minute
	// pendingDue is far enough away for all that is done here.
	pendingDue = 30 * 24 * time.Hour
	// pendingMore subscriptions come between a start and a kill, or a tenth of all.
	pendingMore = 300_000
)

func pendingCommand() *cobra.Command {
	var f flags
	var only []string
	var campaigns int
	says := fmt.Sprintf("  %-17s %s\n", subject, "scrip serve --roles "+pendingRoles+": no read tables")
	for _, p := range pendingPeers {
		says += fmt.Sprintf("  %-17s %s (%s at most)\n", p.name, p.says, thousands(float64(p.most)))
	}
	cmd := &cobra.Command{
		Use: "pending", Short: "Measure what reminders cost that are not due yet: memory, disk, restarts", Args: cobra.NoArgs,
		Long: `Subscribe --n customers to reminders that are a month away, and measure what each costs in memory and on disk, and how long
a start takes until all are known again: after a clean stop, and after kill -9 with more subscriptions since the start.

` + says + `
Peers hold fewer, and bytes for each are compared; their restart is measured with those, and said to be extrapolated
where it is. scrip's 60,000,000 need some 25 GB of disk while it runs.`,
		Example: `  scripbench pending --n 1000000
  scripbench pending --n 100000 --systems scrip,redis-zset -o json`,
	}
	f.add(cmd.Flags(), string(always))
	f.callers, f.runs, f.limit = 1, 1, settleWithin
	cmd.Flags().Lookup("n").Usage = "reminders; 0 = 60,000,000"
	cmd.Flags().StringSliceVar(&only, "systems", nil, "some of the systems, with commas between; absent = all")
	cmd.Flags().IntVar(&campaigns, "campaigns", 60, "campaigns that the reminders are spread over")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		d, err := f.readyForOne(cmd, "what is pending is")
		if err != nil {
			return err
		}
		ours, peers, err := pendingNamed(only)
		if err != nil {
			return err
		}
		if f.n == 0 {
			f.n = 60_000_000
		}
		if campaigns < 1 || campaigns > f.n {
			return usageError{fmt.Errorf("--campaigns must be at least 1 and at most --n (%d)", f.n)}
		}
		report := newReport(f.base)
		if report.Pending, err = f.pending(cmd.Context(), d, campaigns, ours, peers); err != nil {
			return err
		}
		return f.show(cmd, report, func(w io.Writer) error { return pendingText(w, *report.Pending) })
	}
	return cmd
}

// pendingNamed says whether scrip is asked for, and which peers.
func pendingNamed(names []string) (ours bool, peers []pendingPeer, err error) {
	if len(names) == 0 {
		return true, pendingPeers, nil
	}
	known := []string{subject}
	for _, p := range pendingPeers {
		known = append(known, p.name)
		if slices.Contains(names, p.name) {
			peers = append(peers, p)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return false, nil, usageError{fmt.Errorf("--systems: there is no %q; there are %v", name, known)}
		}
	}
	return slices.Contains(names, subject), peers, nil
}

// pending measures scrip and its peers, one after the other.
func (o options) pending(ctx context.Context, d durability, campaigns int, ours bool, peers []pendingPeer) (*Pending, error) {
	r := &Pending{Durability: d, N: o.n, Campaigns: campaigns, Load: loadAverage()}
	u := newSubscriptions("pending", campaigns)
	all := newPendingStand(d, o.scrip)
	var needed []recipe
	if ours {
		needed = append(needed, recipes[0])
	}
	for _, p := range peers {
		needed = append(needed, p.recipe)
	}
	if err := all.missing(needed); err != nil {
		return nil, err
	}
	if ours {
		err := o.holding(ctx, d, recipes[0], func(st *stand) (err error) {
			r.Scrip, err = o.holdScrip(ctx, st, u)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("pending, scrip: %w", err)
		}
	}
	for _, p := range peers {
		at := PendingAtPeers{Name: p.name, Recipe: p.says, N: min(o.n, p.most)}
		err := o.holding(ctx, d, p.recipe, func(st *stand) error {
			defer func() { at.Settings = p.server(st).settings() }()
			return p.hold(ctx, o, st, u, &at)
		})
		if err != nil {
			return nil, fmt.Errorf("pending, %s: %w", p.name, err)
		}
		if r.Scrip != nil && r.Scrip.Filled > r.Scrip.Empty && !at.Disk {
			at.Ratio = bytesEach(at.Bytes, at.N) / bytesEach(r.Scrip.Filled-r.Scrip.Empty, r.N)
		}
		fmt.Fprintf(o.progress, "pending: %s: %.1f bytes each\n", p.name, bytesEach(at.Bytes, at.N))
		r.Peers = append(r.Peers, at)
	}
	return r, nil
}

func bytesEach(bytes int64, n int) float64 { return float64(bytes) / float64(n) }

func newPendingStand(d durability, scrip string) *stand {
	st := newStand(d, scrip)
	st.scrip.roles, st.scrip.within = pendingRoles, pendingStart
	return st
}

// holding runs a system's server and stops it.
func (o options) holding(ctx context.Context, d durability, rc recipe, work func(*stand) error) (err error) {
	st := newPendingStand(d, o.scrip)
	if err := st.missing([]recipe{rc}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.down()) }()
	if err := st.up(ctx, o.base, []recipe{rc}); err != nil {
		return err
	}
	return work(st)
}

// covered waits until the snapshots of all lanes cover what they hold. Schedulers may have a quarter of theirs to replay.
func (s *scripServer) covered(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, knownWithin)
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		fresh, err := s.metric(ctx, "scrip_lane_events_since_snapshot")
		if err != nil {
			return err
		}
		writing, err := s.metric(ctx, "scrip_lane_snapshot_writing")
		if err != nil || fresh+writing == 0 {
			return err
		}
		select {
		case <-tick.C:
		case <-s.proc.gone:
			return s.proc.died()
		case <-ctx.Done():
			return fmt.Errorf("%.0f events are not in snapshots: %w", fresh, context.Cause(ctx))
		}
	}
}

// holdScrip fills scrip, and stops and kills it.
func (o options) holdScrip(ctx context.Context, st *stand, u subscriptions) (r *ScripPending, err error) {
	s := st.scrip
	r = &ScripPending{Settings: s.settings(), Since: min(pendingMore, max(1, o.n/10))}
	say := func(format string, args ...any) { fmt.Fprintf(o.progress, "pending: "+format+"\n", args...) }
	if r.Empty, err = s.resident(ctx); err != nil {
		return nil, err
	}
	if err := u.open(ctx, s, time.Now().Add(pendingDue), false); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := o.subscribe(ctx, s, u, 0, o.n); err != nil {
		return nil, err
	}
	if err := s.known(ctx, o.n, o.teller(o.n)); err != nil {
		return nil, err
	}
	r.FillRate = float64(o.n) / time.Since(began).Seconds()
	// Reminders are pending for days, a start is in between: snapshots have covered them by then.
	began = time.Now()
	if err := s.covered(ctx); err != nil {
		return nil, err
	}
	r.Covered = time.Since(began).Seconds()
	say("covered by snapshots after %.0f s", r.Covered)

	if r.Filled, err = s.resident(ctx); err != nil {
		return nil, err
	}
	say("%s subscriptions, %s a second; %.1f bytes of memory each", thousands(float64(o.n)), thousands(r.FillRate), bytesEach(r.Filled-r.Empty, o.n))
	if r.Heap, err = s.heap(ctx); err != nil {
		return nil, err
	}

	began = time.Now()
	s.hangUp()
	s.proc.stop(pendingStop)
	r.Stop = time.Since(began).Seconds()
	if r.Events, r.Disk, err = s.disk(); err != nil {
		return nil, err
	}
	if r.ReadyAfterStop, r.KnownAfterStop, err = o.knownAgain(ctx, st, o.n); err != nil {
		return nil, fmt.Errorf("after a clean stop: %w", err)
	}
	say("stopped in %.1f s, ready after it in %.1f s, all known in %.1f s", r.Stop, r.ReadyAfterStop, r.KnownAfterStop)
	if r.Again, err = s.resident(ctx); err != nil {
		return nil, err
	}

	if err := o.subscribe(ctx, s, u, o.n, o.n+r.Since); err != nil {
		return nil, err
	}
	if err := s.known(ctx, o.n+r.Since, nil); err != nil {
		return nil, err
	}
	s.hangUp()
	_ = s.proc.cmd.Process.Kill()
	<-s.proc.gone
	if r.ReadyAfterKill, r.KnownAfterKill, err = o.knownAgain(ctx, st, o.n+r.Since); err != nil {
		return nil, fmt.Errorf("after kill -9: %w", err)
	}
	say("ready after kill -9 in %.1f s, all known in %.1f s", r.ReadyAfterKill, r.KnownAfterKill)
	return r, nil
}

// teller says now and then how many are known.
func (o options) teller(n int) func(int) {
	next := time.Now().Add(tellEvery)
	return func(known int) {
		if now := time.Now(); now.After(next) {
			next = now.Add(tellEvery)
			fmt.Fprintf(o.progress, "pending: %s of %s are known to the schedulers\n", thousands(float64(known)), thousands(float64(n)))
		}
	}
}

// knownAgain starts the server once more on what it had and says how long it took until it was ready, and until the
// schedulers knew of all.
func (o options) knownAgain(ctx context.Context, st *stand, n int) (ready, known float64, err error) {
	began := time.Now()
	if ready, err = st.scrip.again(ctx, st.durability); err != nil {
		return 0, 0, err
	}
	err = st.scrip.known(ctx, n, o.teller(n))
	return ready, time.Since(began).Seconds(), err
}

// disk is what the server's files are: those of the event streams, and all others but those of the command streams.
func (s *scripServer) disk() (events, other int64, err error) {
	root := filepath.Join(filepath.Dir(s.proc.log), "data")
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case within(path, topology.EvtStreamPrefix):
			events += info.Size()
		case !within(path, topology.CmdStreamPrefix):
			other += info.Size()
		}
		return nil
	})
	return events, other, err
}
