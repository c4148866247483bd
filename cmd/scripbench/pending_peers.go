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
func holdRedis(ctx context.Context, o options, st *stand, u subscriptions, r *PendingAtPeers) error {
	s := st.redis
	empty := usageOf(s.pid()).memory
	if err := s.fillReminders(ctx, u, dueJob{n: r.N, queues: pendingQueues}, time.Now().Add(pendingDue)); err != nil {
		return err
	}
	r.Bytes = usageOf(s.pid()).memory - empty
	count := func() error {
		sum := int64(0)
		for q := range pendingQueues {
			n, err := s.rdb.ZCard(ctx, remindQueue(q)).Result()
			if err != nil {
				return err
			}
			sum += n
		}
		if sum != int64(r.N) {
			return fmt.Errorf("%d of %d reminders are there", sum, r.N)
		}
		return nil
	}
	if err := count(); err != nil {
		return err
	}
	var err error
	if r.FromLog, err = s.again(ctx, st.durability); err != nil {
		return err
	}
	if err := errors.Join(count(), s.rewrite(ctx)); err != nil {
		return fmt.Errorf("after a start from the append-only file: %w", err)
	}
	if r.FromSnapshot, err = s.again(ctx, st.durability); err != nil {
		return err
	}
	if err := count(); err != nil {
		return fmt.Errorf("after a start from a rewritten append-only file: %w", err)
	}
	return nil
}

// again stops Redis cleanly, starts it on what it had and says how long the start took.
func (r *redisServer) again(ctx context.Context, d durability) (seconds float64, err error) {
	_ = r.rdb.Close()
	r.proc.stop(pendingStop)
	began := time.Now()
	err = r.start(ctx, filepath.Dir(r.proc.log), d)
	return time.Since(began).Seconds(), err
}

// rewrite has the append-only file written anew, which makes its beginning a snapshot.
func (r *redisServer) rewrite(ctx context.Context) error {
	if err := r.rdb.BgRewriteAOF(ctx).Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		info, err := r.rdb.Info(ctx, "persistence").Result()
		if err != nil {
			return err
		}
		if strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrite_scheduled:0") {
			if !strings.Contains(info, "aof_last_bgrewrite_status:ok") {
				return errors.New("rewriting the append-only file failed")
			}
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// holdAsynq schedules tasks.
func holdAsynq(ctx context.Context, o options, st *stand, u subscriptions, r *PendingAtPeers) error {
	s := st.redis
	empty := usageOf(s.pid()).memory
	if err := s.scheduleTasks(ctx, u.tasks(r.N, 1), time.Now().Add(pendingDue)); err != nil {
		return err
	}
	r.Bytes = usageOf(s.pid()).memory - empty
	return nil
}

// holdRiver schedules jobs.
func holdRiver(ctx context.Context, o options, st *stand, u subscriptions, r *PendingAtPeers) error {
	pool, err := st.postgres.riverPool(ctx)
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

// within says whether one of a path's directories begins so.
func within(path, prefix string) bool {
	return strings.Contains(filepath.ToSlash(path), "/"+prefix)
}
