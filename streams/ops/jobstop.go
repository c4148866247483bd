package ops

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// errStopped ends a job whose stop was requested. Work takes it for a context that was cancelled.
var errStopped error = stopError{}

type stopError struct{}

func (stopError) Error() string { return "stopped" }

func (stopError) Is(err error) bool { return err == context.Canceled }

// stopped reports whether a stop was requested.
func (run *JobRun) stopped() bool {
	select {
	case <-run.Stop:
		return true
	default:
		return false
	}
}

// StopJob requests the end of a job, of whoever may start it. One that has ended stays as it is.
func (o *Ops) StopJob(ctx context.Context, who Caller, q NamedJob) (Job, error) {
	if _, err := o.ShowJob(ctx, who, q); err != nil {
		return Job{}, err
	}
	job, err := o.Jobs.Stop(ctx, who, q.ID)
	o.showCustomers(who.Principal, &job)
	return job, err
}

// Stop requests the end of a job. It returns when the request is stored and recorded in the audit stream: the server that runs the
// job, whichever it is, finds the request at its next update. A job that no server has taken has ended when Stop returns. A second
// request, and one for a job that has ended, changes nothing.
//
// What a crash does: the request is in the job or not. A job whose server dies before it has seen the request failed.
func (j *Jobs) Stop(ctx context.Context, who Caller, id string) (job Job, err error) {
	slot, _, ok := slot(id)
	if !ok {
		return Job{}, ErrNoJob
	}
	recorded := false
	err = natsx.Retry(ctx, func(ctx context.Context) error {
		var revision uint64
		if job, revision, err = j.read(ctx, slot); err != nil {
			return err
		}
		switch {
		case job.ID != id:
			return ErrNoJob
		case job.Ended() || job.StoppedBy != "":
			return nil
		}
		if !recorded {
			if err := j.Audit.Append(ctx, who.Entry(audit.Jobs, "job.stop", id)); err != nil {
				return err
			}
			recorded = true
		}
		job.StoppedBy = who.Name
		if job.State == JobWaiting {
			job.State, job.Error, job.Updated = JobStopped, "stopped by "+who.Name, j.Clock.Now().UTC()
		}
		if _, err = j.write(ctx, &job, revision); natsx.IsWrongSequence(err) {
			err = errors.Join(natsx.ErrAgain, err) // its server has updated it, or taken it
		}
		return err
	})
	if err != nil && recorded {
		message := fmt.Sprintf("the stop of job %s may have been stored: %s; send it again", id, err)
		return Job{}, &Refusal{Code: UnknownOutcome, Message: message}
	}
	return job, err
}
