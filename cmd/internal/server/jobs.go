package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/projections/rebuild"
	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// startJobs prepares what runs long actions: rebuilds and verifications where tables are projected, backups where requests are
// answered, since such a server has the code key, and changes of many coupons where there are tables, too. Requests start them by
// s.jobs.
//
// A rebuild may use 50 MiB for each of its loaders, of which there are at most four. The process has no memory limit of its own
// for that: a soft limit would slow down the lanes, which share it.
func (s *server) startJobs(ctx context.Context) error {
	if !s.opts.has(RoleAPI) && !s.opts.has(RoleProjector) {
		return nil
	}
	js, err := s.jetStream(ctx, "jobs")
	if err != nil {
		return err
	}
	work := map[string]ops.JobWork{}
	if s.opts.has(RoleProjector) {
		work[ops.RebuildJob] = s.onTables(js, rebuildTables)
		work[ops.VerifyJob] = s.onTables(js, verifyTables)
	}
	if s.opts.has(RoleAPI) {
		work[ops.BackupJob] = func(ctx context.Context, run ops.JobRun) (any, error) { return s.takeBackup(ctx, js, run) }
	}
	s.jobs = &ops.Jobs{JetStream: js, Server: s.id, Work: work, Audit: s.keys.audit, Clock: wall.Machine, Logger: s.log}
	return nil
}

// runJobs runs them. It is the last step: they end before the parts that they need.
func (s *server) runJobs(context.Context) error {
	if s.jobs != nil {
		s.group.start("jobs", s.jobs.Run)
	}
	return nil
}

// onTables is work that needs the log and the read tables.
func (s *server) onTables(js jetstream.JetStream, work func(context.Context, *rebuild.Session, ops.JobRun) (any, error)) ops.JobWork {
	return func(ctx context.Context, run ops.JobRun) (any, error) {
		if err := s.tables.status(); err != nil {
			return nil, fmt.Errorf("the read tables are unavailable: %w", err)
		}
		session, err := rebuild.Open(ctx, s.tables.url(), js, s.stream, rebuild.Options{
			Who: "scrip " + run.Action, Progress: reportTo(run.Report), Logger: s.log,
		})
		if err != nil {
			return nil, notStarted(err)
		}
		defer session.Close()
		result, err := work(ctx, session, run)
		if err != nil {
			return nil, notStarted(err) // no result: it would look like one of a job that is done
		}
		return result, nil
	}
}

// notStarted is the refusal of a precondition that failed.
func notStarted(err error) error {
	if errors.Is(err, rebuild.ErrRefused) {
		return &ops.Refusal{Message: strings.TrimPrefix(err.Error(), rebuild.ErrRefused.Error()+": ")}
	}
	return err
}

// reportTo translates the progress of a rebuild.
func reportTo(report func(ops.JobProgress)) func(rebuild.Progress) {
	return func(p rebuild.Progress) {
		now := ops.JobProgress{Phase: string(p.Phase), Done: int64(p.Messages), Total: int64(p.TotalMessages), Events: p.Events}
		if p.Yielding {
			now.Note = "yielding to live traffic"
		}
		report(now)
	}
}

func rebuildTables(ctx context.Context, s *rebuild.Session, run ops.JobRun) (any, error) {
	switch run.Action {
	case "rebuild.undo":
		return ops.RebuildUndone{Undone: true}, s.Undo(ctx)
	case "rebuild.drop":
		dropped, err := s.DropPrevious(ctx)
		return ops.PreviousDropped{Dropped: dropped}, err
	}
	var q ops.RebuildTables
	if err := json.Unmarshal(run.Request, &q); err != nil {
		return nil, err
	}
	if q.Schema != "" {
		return s.Copy(ctx, q.Schema, q.Until)
	}
	return s.Rebuild(ctx)
}

func verifyTables(ctx context.Context, s *rebuild.Session, run ops.JobRun) (any, error) {
	var q ops.VerifyTables
	if err := json.Unmarshal(run.Request, &q); err != nil {
		return nil, err
	}
	return s.Verify(ctx, rebuild.VerifyOptions{Campaign: q.Campaign, Limit: q.Limit, Repair: q.Repair})
}

func (s *server) takeBackup(ctx context.Context, js jetstream.JetStream, run ops.JobRun) (any, error) {
	var q ops.TakeBackup
	if err := json.Unmarshal(run.Request, &q); err != nil {
		return nil, err
	}
	if err := q.Check(); err != nil { // once more: it becomes a path
		return nil, err
	}
	all := cmp.Or(s.opts.Backups, filepath.Join(s.dir.Path(), datadir.Backups))
	err := atomicfile.MkdirAll(all, 0o700)
	if err == nil && s.opts.Backups == "" {
		// Synced also where it exists: a server that made it may have been killed before it was on disk.
		err = atomicfile.SyncDir(s.dir.Path())
	}
	if err != nil {
		return nil, fmt.Errorf("making the directory of backups: %w; name another one with serve --backups", err)
	}
	opts := backup.CreateOptions{Version: s.opts.Version, Server: s.id, Logger: s.log, Key: s.key, WithoutKey: q.WithoutKey,
		Progress: func(done, total int64) { run.Report(ops.JobProgress{Phase: "copying", Done: done, Total: total}) }}
	dir := filepath.Join(all, q.Name)
	m, err := backup.Create(ctx, js, dir, opts)
	if err != nil {
		return nil, err
	}
	taken := ops.Backup(m, dir)
	taken.Server = s.id
	return taken, nil
}
