package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// pendingQueues is how many sorted sets the reminders of Redis are spread over.
const pendingQueues = 10

// holdRedis fills sorted sets, and starts Redis again from its log of commands and from a snapshot.
func holdRedis(ctx context.Context, o options, b *bench, u subscriptions, r *PendingAtPeers) error {
	s := b.redis
	empty := usageOf(s.pids()...).memory
	if err := s.fillReminders(ctx, u, dueJob{n: r.N, queues: pendingQueues}, time.Now().Add(pendingDue)); err != nil {
		return err
	}
	r.Bytes = usageOf(s.pids()...).memory - empty
	count := func() error {
		n, err := s.reminders(ctx, pendingQueues)
		if err == nil && n != r.N {
			err = fmt.Errorf("%d of %d reminders are there", n, r.N)
		}
		return err
	}
	if err := count(); err != nil {
		return err
	}
	var err error
	if r.FromLog, err = s.restart(ctx, b.durability); err != nil {
		return err
	}
	if err := errors.Join(count(), s.rewrite(ctx)); err != nil {
		return fmt.Errorf("after a start from the append-only file: %w", err)
	}
	if r.FromSnapshot, err = s.restart(ctx, b.durability); err != nil {
		return err
	}
	if err := count(); err != nil {
		return fmt.Errorf("after a start from a rewritten append-only file: %w", err)
	}
	return nil
}

// rewrite rewrites the append-only file, so that it begins with a snapshot.
func (r *redisServer) rewrite(ctx context.Context) error {
	if err := r.rdb.BgRewriteAOF(ctx).Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	return poll(ctx, r.proc, readyEvery, func() error {
		info, err := r.rdb.Info(ctx, "persistence").Result()
		switch {
		case err != nil:
			return err
		case !strings.Contains(info, "aof_rewrite_in_progress:0") || !strings.Contains(info, "aof_rewrite_scheduled:0"):
			return fmt.Errorf("%w: the append-only file is being rewritten", errWaiting)
		case !strings.Contains(info, "aof_last_bgrewrite_status:ok"):
			return errors.New("rewriting the append-only file failed")
		}
		return nil
	})
}

// holdAsynq schedules tasks.
func holdAsynq(ctx context.Context, o options, b *bench, u subscriptions, r *PendingAtPeers) error {
	s := b.redis
	empty := usageOf(s.pids()...).memory
	if err := s.scheduleTasks(ctx, u.tasks(r.N, 1), time.Now().Add(pendingDue)); err != nil {
		return err
	}
	r.Bytes = usageOf(s.pids()...).memory - empty
	return nil
}

// holdRiver schedules jobs.
func holdRiver(ctx context.Context, o options, b *bench, u subscriptions, r *PendingAtPeers) error {
	pool, err := b.postgres.riverPool(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := insertJobs(ctx, pool, u.tasks(r.N, 1), time.Now().Add(pendingDue)); err != nil {
		return err
	}
	r.Disk = true
	var jobs int
	if err := pool.QueryRow(ctx, `SELECT count(*), pg_total_relation_size('river_job') FROM river_job WHERE state = 'scheduled'`).Scan(&jobs, &r.Bytes); err != nil {
		return err
	}
	if jobs != r.N {
		return fmt.Errorf("%d of %d jobs are there", jobs, r.N)
	}
	return nil
}

// within reports whether one of a path's directories has the prefix.
func within(path, prefix string) bool {
	return strings.Contains(filepath.ToSlash(path), "/"+prefix)
}
