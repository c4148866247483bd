package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Pending is the cost of reminders that are not due yet: memory, disk, and restarts.
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

// ScripPending is scrip with many reminders.
type ScripPending struct {
	Settings string `json:"settings"`
	// FillRate is subscriptions a second until the schedulers had all.
	FillRate float64 `json:"fill_rate"`
	// Private memory in bytes, after garbage collection: empty, with all, and started again with all.
	Empty  int64 `json:"empty_bytes"`
	Filled int64 `json:"filled_bytes"`
	Again  int64 `json:"again_bytes"`
	// Heap by package, in bytes: a sample.
	Heap Heap `json:"heap"`
	// Disk in bytes: event streams, and all else in the data directory but the command streams (snapshots, indexes).
	Events int64 `json:"events_bytes"`
	Disk   int64 `json:"other_disk_bytes"`
	// Covered is how many seconds after the last subscription snapshots covered what the lanes hold.
	Covered float64 `json:"covered_s"`
	// Seconds: stopping; ready, and all in the schedulers, after it and after a kill with Since more subscriptions.
	Stop           float64 `json:"stop_s"`
	ReadyAfterStop float64 `json:"ready_after_stop_s"`
	KnownAfterStop float64 `json:"known_after_stop_s"`
	ReadyAfterKill float64 `json:"ready_after_kill_s"`
	KnownAfterKill float64 `json:"known_after_kill_s"`
	Since          int     `json:"before_kill"`
}

// PendingAtPeers is the cost at a peer, for fewer of them.
type PendingAtPeers struct {
	Name     string `json:"name"`
	Recipe   string `json:"recipe"`
	Settings string `json:"settings"`
	N        int    `json:"n"`
	// Bytes in memory, or on disk if Disk; table and indexes.
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
	hold func(ctx context.Context, o options, b *bench, u subscriptions, r *PendingAtPeers) error
}

var pendingPeers = []pendingPeer{
	{recipe: recipe{name: "redis-zset", about: "sorted sets by due instant, member campaign:customer", server: onRedis}, most: 5_000_000, hold: holdRedis},
	{recipe: recipe{name: "asynq", about: "a scheduled task for each", server: onRedis}, most: 200_000, hold: holdAsynq},
	{recipe: recipe{name: "river", about: "a scheduled job for each; on disk", server: onPostgres}, most: 500_000, hold: holdRiver},
}

const (
	// pendingRoles are without the read tables, which the command tables measures.
	pendingRoles = "lanes,scheduler,api"
	// pendingStop and pendingStart bound how long a server with all of them takes to stop and to start.
	pendingStop, pendingStart = 5 * time.Minute, 30 * time.Minute
	// pendingDue is later than the end of any run.
	pendingDue = 30 * 24 * time.Hour
	// pendingMore subscriptions, or a tenth of all, are made between a start and the kill.
	pendingMore = 300_000
)

func pendingCommand() *cobra.Command {
	var f flags
	var campaigns int
	list := fmt.Sprintf("  %-17s %s\n", subject, "scrip serve --roles "+pendingRoles+": no read tables")
	for _, p := range pendingPeers {
		list += fmt.Sprintf("  %-17s %s (%s at most)\n", p.name, p.about, num(p.most))
	}
	cmd := &cobra.Command{
		Use: "pending", Short: "Measure the cost of reminders that are not due yet: memory, disk, restarts",
		Long: `Subscribe --n customers to reminders that are due in a month, and measure memory and disk for each, and how long a start
takes until all are known again: after a clean stop, and after kill -9 with more subscriptions since the start.

` + list + `
Peers hold fewer, and bytes for each are compared; their restart is measured with those, and extrapolated in a column of
its own. scrip's 60,000,000 need some 25 GB of disk while it runs.`,
		Example: `  scripbench pending --n 1000000
  scripbench pending --systems scrip`,
	}
	f.addSystems(cmd)
	cmd.Flags().IntVar(&campaigns, "campaigns", 60, "campaigns that the reminders are spread over")
	return f.command(cmd, "reminders", 60_000_000, func(ctx context.Context, d durability, r *Report) (func(io.Writer) error, error) {
		ours, peers, err := pendingNamed(f.systems)
		if err != nil {
			return nil, err
		}
		if campaigns < 1 || campaigns > f.n {
			return nil, usageError{fmt.Errorf("--campaigns must be at least 1 and at most --n (%d)", f.n)}
		}
		r.Pending, err = f.pending(ctx, d, campaigns, ours, peers)
		return func(w io.Writer) error { return pendingText(w, *r.Pending) }, err
	})
}

// pendingNamed reports whether scrip is among the names, and returns the peers; all if there is no name.
func pendingNamed(names []string) (ours bool, peers []pendingPeer, err error) {
	list := append([]pendingPeer{{recipe: recipes[0]}}, pendingPeers...)
	if list, err = named(list, func(p pendingPeer) string { return p.name }, names, systemsFlag); err != nil {
		return false, nil, err
	}
	if ours = list[0].name == subject; ours {
		list = list[1:]
	}
	return ours, list, nil
}

// pending measures scrip and its peers, one after the other.
func (o options) pending(ctx context.Context, d durability, campaigns int, ours bool, peers []pendingPeer) (*Pending, error) {
	o.roles, o.within = pendingRoles, pendingStart
	r := &Pending{Durability: d, N: o.n, Campaigns: campaigns, Load: loadAverage()}
	u := newSubscriptions("pending", campaigns)
	needed := each(peers, func(p pendingPeer) recipe { return p.recipe })
	all := newBench(d, o.scrip)
	if all.scrip.roles = o.roles; ours {
		needed = append(needed, recipes[0])
	}
	if err := all.missing(needed); err != nil {
		return nil, err
	}
	if ours {
		err := o.alone(ctx, d, func(b *bench) (err error) {
			r.Scrip, err = o.holdScrip(ctx, b, u)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("pending, scrip: %w", err)
		}
	}
	for _, p := range peers {
		at := PendingAtPeers{Name: p.name, Recipe: p.about, N: min(o.n, p.most)}
		err := o.with(ctx, d, []recipe{p.recipe}, func(b *bench) error {
			defer func() { at.Settings = p.server(b).settings() }()
			return p.hold(ctx, o, b, u, &at)
		})
		if err != nil {
			return nil, fmt.Errorf("pending, %s: %w", p.name, err)
		}
		if r.Scrip != nil && r.Scrip.Filled > r.Scrip.Empty && !at.Disk {
			at.Ratio = bytesEach(at.Bytes, at.N) / bytesEach(r.Scrip.Filled-r.Scrip.Empty, r.N)
		}
		o.printf("pending: %s: %.1f bytes each", p.name, bytesEach(at.Bytes, at.N))
		r.Peers = append(r.Peers, at)
	}
	return r, nil
}

// covered waits until the snapshots of all lanes cover what they hold. Schedulers may have a quarter of theirs to replay.
func (s *scripServer) covered(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, knownWithin)
	defer cancel()
	return poll(ctx, s.proc, time.Second, func() error {
		fresh, err := s.metric(ctx, "scrip_lane_events_since_snapshot")
		if err != nil {
			return err
		}
		writing, err := s.metric(ctx, "scrip_lane_snapshot_writing")
		if err == nil && fresh+writing > 0 {
			err = fmt.Errorf("%w: %.0f events are not in snapshots", errWaiting, fresh)
		}
		return err
	})
}

// holdScrip fills scrip, and stops and kills it.
func (o options) holdScrip(ctx context.Context, b *bench, u subscriptions) (r *ScripPending, err error) {
	s := b.scrip
	r = &ScripPending{Settings: s.settings(), Since: min(pendingMore, max(1, o.n/10))}
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
	if err := s.known(ctx, o.n, o.report(o.n)); err != nil {
		return nil, err
	}
	r.FillRate = float64(o.n) / time.Since(began).Seconds()
	// Reminders are pending for days before a restart: snapshots cover them by then.
	began = time.Now()
	if err := s.covered(ctx); err != nil {
		return nil, err
	}
	r.Covered = time.Since(began).Seconds()
	o.printf("pending: covered by snapshots after %.0f s", r.Covered)

	if r.Filled, err = s.resident(ctx); err != nil {
		return nil, err
	}
	o.printf("pending: %s subscriptions, %s a second; %.1f bytes of memory each", num(o.n), thousands(r.FillRate), bytesEach(r.Filled-r.Empty, o.n))
	if r.Heap, err = s.heap(ctx); err != nil {
		return nil, err
	}

	// again restarts the server and returns how many seconds ending took, and how many passed until it was ready, and
	// until the schedulers had all.
	again := func(within time.Duration, n int, between func() error) (ending, ready, known float64, err error) {
		ending, began, ready, err := s.restart(ctx, b.durability, within, between)
		if err == nil {
			err = s.known(ctx, n, o.report(n))
		}
		return ending, ready, time.Since(began).Seconds(), err
	}
	r.Stop, r.ReadyAfterStop, r.KnownAfterStop, err = again(pendingStop, o.n, func() (err error) {
		r.Events, r.Disk, err = s.disk()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("after a clean stop: %w", err)
	}
	o.printf("pending: stopped in %.1f s, ready after it in %.1f s, all known in %.1f s", r.Stop, r.ReadyAfterStop, r.KnownAfterStop)
	if r.Again, err = s.resident(ctx); err != nil {
		return nil, err
	}

	if err := o.subscribe(ctx, s, u, o.n, o.n+r.Since); err != nil {
		return nil, err
	}
	if err := s.known(ctx, o.n+r.Since, nil); err != nil {
		return nil, err
	}
	if _, r.ReadyAfterKill, r.KnownAfterKill, err = again(0, o.n+r.Since, nil); err != nil {
		return nil, fmt.Errorf("after kill -9: %w", err)
	}
	o.printf("pending: ready after kill -9 in %.1f s, all known in %.1f s", r.ReadyAfterKill, r.KnownAfterKill)
	return r, nil
}

// report writes now and then how many are known.
func (o options) report(n int) func(int) {
	next := time.Now().Add(reportEvery)
	return func(known int) {
		if now := time.Now(); now.After(next) {
			next = now.Add(reportEvery)
			o.printf("pending: %s of %s are known to the schedulers", num(known), num(n))
		}
	}
}

// disk is the size of the server's files: those of the event streams, and all others but those of the command streams.
func (s *scripServer) disk() (events, other int64, err error) {
	err = filepath.WalkDir(s.data(), func(path string, d fs.DirEntry, err error) error {
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
