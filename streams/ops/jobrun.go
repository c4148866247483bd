package ops

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// jobUpdate is how often the server that runs a job updates it.
	jobUpdate = time.Second
	// jobEnd bounds the attempts to store the end of a job.
	jobEnd = 10 * time.Second
	// jobLast is the same while the server stops.
	jobLast = 2 * time.Second
	// mostResult bounds a result, in bytes: it is in one message.
	mostResult = 512 << 10
)

// watchPause is the pause before a retry to watch the bucket.
const watchPause = time.Second

// Run takes jobs of the kinds in Work and does them, until ctx ends; those that it does end then, too.
func (j *Jobs) Run(ctx context.Context) error {
	if len(j.Work) == 0 {
		<-ctx.Done()
		return nil
	}
	running := make(chan struct{}, len(jobKinds)+mostChanges)
	defer func() {
		for range cap(running) { // each job that runs has one
			running <- struct{}{}
		}
	}()
	for ctx.Err() == nil {
		err := j.bury(ctx)
		if err == nil {
			err = j.watch(ctx, running)
		}
		if ctx.Err() == nil {
			cmp.Or(j.Logger, slog.Default()).Warn("the bucket of jobs cannot be watched; retrying", "err", err)
			_ = natsx.Pause(ctx, watchPause)
		}
	}
	return nil
}

// bury ends the jobs that this server ran before it was started, so that the next ones need not wait.
func (j *Jobs) bury(ctx context.Context) error {
	if j.buried {
		return nil
	}
	slots, err := j.slots(ctx)
	if err != nil {
		return err
	}
	for _, slot := range slots {
		job, revision, err := j.read(ctx, slot)
		switch {
		case errors.Is(err, ErrNoJob):
		case err != nil:
			return err
		case j.Work[job.Kind] != nil && job.State == JobRunning && job.Server == j.Server:
			j.end(ctx, job, revision, nil, errors.New("the server that ran it ended; start it again"))
		}
	}
	j.buried = true
	return nil
}

// watch takes jobs until ctx or the watch ends.
func (j *Jobs) watch(ctx context.Context, running chan struct{}) error {
	kv, err := j.JetStream.KeyValue(ctx, topology.JobsBucket)
	if err != nil {
		return err
	}
	updates, err := kv.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return err
	}
	defer func() { _ = updates.Stop() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case entry, ok := <-updates.Updates():
			if !ok {
				return errors.New("the watch ended")
			}
			var job Job
			if entry == nil || json.Unmarshal(entry.Value(), &job) != nil || job.State != JobWaiting || j.Work[job.Kind] == nil {
				continue
			}
			if j.Clock.Now().Sub(entry.Created()) > jobDead {
				continue // shown as failed already
			}
			running <- struct{}{}
			go func() {
				defer func() { <-running }()
				j.take(ctx, job, entry.Revision())
			}()
		}
	}
}

// errTaken ends the work of a job that another one has replaced.
var errTaken = errors.New("another job was started while this one could not be updated")

// take takes a job, unless another server is first, and does it.
func (j *Jobs) take(ctx context.Context, job Job, revision uint64) {
	logger := cmp.Or(j.Logger, slog.Default()).With("job", job.ID)
	job.State, job.Server, job.Updated = JobRunning, j.Server, j.Clock.Now().UTC()
	revision, err := j.write(ctx, &job, revision)
	if err != nil {
		if !natsx.IsWrongSequence(err) {
			logger.Warn("the job was not taken", "err", err)
		}
		return
	}
	logger.Info("job started", "action", job.Action, "by", job.By)
	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	progress, ended, stop, kept := make(chan JobProgress, 1), make(chan struct{}), make(chan struct{}), job.Progress
	var result any
	var failed error
	go func() {
		defer close(ended)
		run := JobRun{ID: job.ID, Action: job.Action, Request: job.Request, By: job.By, RequestID: job.RequestID, Stop: stop, Report: func(p JobProgress) {
			select {
			case <-progress: // only the newest counts
			default:
			}
			select {
			case progress <- p:
			default:
			}
		}}
		if kept != nil {
			run.Kept = kept.Kept
		}
		result, failed = j.Work[job.Kind](working, run)
	}()
	tick := time.NewTicker(jobUpdate)
	defer tick.Stop()
	stopping := false
updates:
	for {
		select {
		case <-ended:
			break updates
		case <-ctx.Done():
			break updates
		case p := <-progress:
			job.Progress = &p
			continue
		case <-tick.C:
		}
		job.Updated = j.Clock.Now().UTC()
		if revision, err = j.update(ctx, &job, revision); errors.Is(err, errTaken) {
			cancel(errTaken)
			break
		} else if err != nil {
			logger.Warn("the job's progress was not stored; it goes on", "err", err)
		}
		if job.StoppedBy != "" && !stopping {
			stopping = true
			close(stop)
			if job.Kind != CouponsJob {
				cancel(errStopped)
			}
		}
	}
	<-ended
	if failed != nil && errors.Is(context.Cause(working), errStopped) {
		failed = fmt.Errorf("%w: %w", errStopped, failed)
	}
	select {
	case p := <-progress:
		job.Progress = &p
	default:
	}
	j.end(ctx, job, revision, result, failed)
}

// update stores a job that this server has. An update whose answer was lost may have been stored: the value shows it.
func (j *Jobs) update(ctx context.Context, job *Job, revision uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, jobDead/3)
	defer cancel()
	next, err := j.write(ctx, job, revision)
	if err == nil || !natsx.IsWrongSequence(err) {
		return max(next, revision), err
	}
	have, next, err := j.read(ctx, job.slot())
	switch {
	case err != nil:
		return revision, err
	case have.ID != job.ID || have.Server != job.Server:
		return revision, errTaken
	}
	job.StoppedBy = cmp.Or(have.StoppedBy, job.StoppedBy) // whose request has replaced the revision
	if next, err = j.write(ctx, job, next); natsx.IsWrongSequence(err) {
		err = errors.Join(natsx.ErrAgain, err) // it was read from a replica that lags
	}
	return max(next, revision), err
}

// end stores the end of a job and records it.
func (j *Jobs) end(ctx context.Context, job Job, revision uint64, result any, failed error) {
	limit := jobEnd
	if ctx.Err() != nil {
		limit = jobLast
		if failed != nil && !errors.Is(failed, errStopped) {
			failed = errors.New("the server that ran it was stopped; start it again")
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	logger := cmp.Or(j.Logger, slog.Default()).With("job", job.ID)
	job.State, job.Updated = JobDone, j.Clock.Now().UTC()
	var no *Refusal
	switch {
	case errors.As(failed, &no):
		job.State, job.Error = JobRefused, no.Error()
	case errors.Is(failed, errStopped):
		job.State, job.Error = JobStopped, strings.Replace(failed.Error(), errStopped.Error(), "stopped by "+job.StoppedBy, 1)
	case failed != nil:
		job.State, job.Error = JobFailed, failed.Error()
	}
	if result != nil {
		body, err := json.Marshal(result)
		switch {
		case err != nil:
			job.State, job.Error = JobFailed, "encoding the result: "+err.Error()
		case len(body) > mostResult:
			job.State, job.Error = JobFailed, fmt.Sprintf("it ended, and its result has %d bytes, more than %d; give a smaller limit", len(body), mostResult)
		default:
			job.Result = body
		}
	}
	if job.State != JobFailed && job.State != JobStopped {
		job.Progress = nil
	}
	err := natsx.Retry(ctx, func(ctx context.Context) (err error) {
		revision, err = j.update(ctx, &job, revision)
		return err
	})
	if err == nil && !job.dry() {
		who := access.Principal{ID: job.Key, Name: job.By}
		err = j.Audit.Append(ctx, audit.By(who, audit.Jobs, job.Action+" "+string(job.State), strings.TrimSpace(job.ID+" "+wire.Shorten(job.Error, 400))))
	}
	if err != nil {
		logger.Error("the end of the job was not stored", "state", job.State, "err", err)
	}
	logger.Info("job ended", "state", job.State, "error", job.Error, "took", job.Updated.Sub(job.Started).Round(time.Millisecond))
}
