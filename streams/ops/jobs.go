package ops

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// The kinds of jobs. Of each kind one job runs at a time in all servers of a log, of changes of many coupons one of each client, and
// the last one is kept.
const (
	RebuildJob = "rebuild"
	VerifyJob  = "verify"
	BackupJob  = "backup"
	CouponsJob = "coupons"
)

// jobKinds are they, with the servers that run them.
var jobKinds = map[string]string{RebuildJob: "the role projector", VerifyJob: "the role projector", BackupJob: "the role api",
	CouponsJob: "the role api and read tables"}

// JobState is the state of a job.
type JobState string

// The states. A job that is refused changed nothing.
const (
	JobWaiting JobState = "waiting" // for a server that takes it
	JobRunning JobState = "running"
	JobDone    JobState = "done"
	JobFailed  JobState = "failed"
	JobRefused JobState = "refused"
)

// JobStates are they.
var JobStates = []JobState{JobWaiting, JobRunning, JobDone, JobFailed, JobRefused}

// JobKinds returns the kinds of jobs, in order.
func JobKinds() []string { return slices.Sorted(maps.Keys(jobKinds)) }

const (
	// jobUpdate is how often the server that runs a job updates it.
	jobUpdate = time.Second
	// jobDead is how long a job may have no update before its server is taken for dead.
	jobDead = 15 * time.Second
	// jobResumed is how long the same request goes on where a job has failed.
	jobResumed = 24 * time.Hour
	// jobEnd bounds the attempts to store the end of a job.
	jobEnd = 10 * time.Second
	// jobStopped is the same while the server stops.
	jobStopped = 2 * time.Second
	// mostResult bounds a result, in bytes: it is in one message.
	mostResult = 512 << 10
)

// Job is a long action that a server does, whether its caller waits or not.
type Job struct {
	ID     string   `json:"id"`
	Kind   string   `json:"kind"`
	Action string   `json:"action" doc:"Such as rebuild.start."`
	State  JobState `json:"state" enum:"waiting,running,done,failed,refused" doc:"refused: nothing was changed."`
	// By is who started it, and Key the id of that user's key.
	By      string          `json:"by"`
	Key     string          `json:"key,omitempty"`
	Request json.RawMessage `json:"request,omitempty"`
	// RequestID is the request id of the request that started it.
	RequestID string    `json:"request_id,omitempty"`
	Server    string    `json:"server,omitempty" doc:"The server that runs it."`
	Started   time.Time `json:"started"`
	// Updated is written about once a second while it runs.
	Updated  time.Time       `json:"updated"`
	Progress *JobProgress    `json:"progress,omitempty"`
	Result   json.RawMessage `json:"result,omitempty" doc:"Of a job that is done, in the form of its kind."`
	Error    string          `json:"error,omitempty"`
}

// kept reports whether it failed, and has what the next run goes on from.
func (j *Job) kept() bool {
	return j.State == JobFailed && j.Progress != nil && j.Progress.Kept != nil
}

// canGoOn reports whether the last job of its kind has this id and can go on.
func (j *Jobs) canGoOn(ctx context.Context, id string) bool {
	job, err := j.Show(ctx, id)
	return err == nil && job.kept()
}

// resumes reports whether a job goes on where the last one of its kind has failed: the same request of the same user.
func (j *Job) resumes(last *Job) bool {
	return last.kept() && j.Started.Sub(last.Updated) < jobResumed &&
		j.Action == last.Action && j.By == last.By && j.Key == last.Key && bytes.Equal(j.Request, last.Request)
}

// Ended reports whether the job has ended.
func (j *Job) Ended() bool { return j.State != JobWaiting && j.State != JobRunning }

// JobProgress is how far a job is. Done of Total are counted in messages, indexes or bytes, by the phase; 0 = unknown.
type JobProgress struct {
	Phase string `json:"phase"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"`
	// Events are event lines that were applied.
	Events uint64 `json:"events,omitempty"`
	Note   string `json:"note,omitempty"`
	// Kept is what a job that failed goes on from when its request is sent again.
	Kept json.RawMessage `json:"kept,omitempty"`
}

// JobRun is a job for the function that does it.
type JobRun struct {
	ID, Action    string
	Request       json.RawMessage
	By, RequestID string
	// Kept is that of the progress at which a run before this one failed; nil = there was none.
	Kept json.RawMessage
	// Report stores progress, at the next update. It may be called by several goroutines.
	Report func(JobProgress)
}

// JobWork does a job. Its result is encoded as JSON; it may come with an error. A *Refusal is of a job that changed nothing,
// because a precondition failed.
type JobWork func(ctx context.Context, run JobRun) (result any, err error)

// ErrNoJob: there is no job with such an id; only the last of each slot is kept.
var ErrNoJob = errors.New("there is no such job; only the last one of each kind, and of a key, is kept, see scrip job list")

// Jobs starts, shows and runs the jobs of a log.
//
//	Start ──> bucket SCRIP_JOBS: slot = {id, state, by, …} ──watch──> Run, at a server that has this kind in Work
//	Show  <──                    progress, result, error   <────────
//
// Owner: a job is of the server that took it, which updates its value once a second. Every update names the revision that
// it replaces, so two servers never have one.
//
// What a crash does: nothing updates the job of a dead server any more. After jobDead it is shown as failed, and the next one
// of its slot replaces it: one with the same request goes on from the progress that is stored, under the same id. What its work
// left, a rebuild or a backup removes when it is started again.
type Jobs struct {
	JetStream jetstream.JetStream
	// Server is the id of this server, and Work what it runs, by kind; none = it only starts and shows jobs.
	Server string
	Work   map[string]JobWork
	Audit  *audit.Log
	Clock  wall.Clock
	Logger *slog.Logger

	buried bool // see bury
}

// Start starts a job, named by its action such as rebuild.start. It returns when the job is stored and recorded in the audit
// stream, and before a server takes it. It is refused with Busy while a job of the same slot runs.
func (j *Jobs) Start(ctx context.Context, who Caller, action string, request any) (Job, error) {
	kind, _, _ := strings.Cut(action, ".")
	body, err := json.Marshal(request)
	if err != nil {
		return Job{}, fmt.Errorf("encoding the request: %w", err)
	}
	now := j.Clock.Now().UTC().Truncate(time.Millisecond)
	slot := slotOf(kind, who)
	job := Job{ID: slot + "-" + nameOf(who)[:10], Kind: kind, Action: action, State: JobWaiting, By: who.Name, Key: who.ID,
		RequestID: who.Request, Request: body, Started: now, Updated: now}
	last, revision, err := j.read(ctx, slot)
	switch {
	case err != nil && !errors.Is(err, ErrNoJob):
		return Job{}, err
	case err == nil && job.resumes(&last):
		job.ID, job.Progress = last.ID, last.Progress
	case err == nil && last.ID == job.ID && who.Once != "": // the answer to its first request was lost
		return last, nil
	case err == nil && !last.Ended():
		return Job{}, busy(&last)
	}
	if kind == CouponsJob {
		if err := j.crowded(ctx); err != nil {
			return Job{}, err
		}
	}
	if !job.dry() {
		if err := j.Audit.Append(ctx, who.Entry(audit.Jobs, action, job.ID+" "+string(body))); err != nil {
			return Job{}, err
		}
	}
	_, err = j.write(ctx, &job, revision)
	if natsx.IsWrongSequence(err) { // another was started in this moment
		if last, _, err = j.read(ctx, slot); err == nil {
			err = busy(&last)
		}
		return Job{}, err
	}
	if err != nil {
		return Job{}, &Refusal{Code: UnknownOutcome, Message: fmt.Sprintf("job %s may have been started: %s; see scrip job list", job.ID, err)}
	}
	return job, nil
}

// nameOf is a name for what a request makes: the same one for a retry of it.
func nameOf(who Caller) string {
	name := rand.Text()
	if who.Once != "" {
		sum := sha256.Sum256([]byte(who.Client() + " " + who.Once))
		name = base32.StdEncoding.EncodeToString(sum[:])
	}
	return strings.ToLower(name[:20])
}

// Show returns a job.
func (j *Jobs) Show(ctx context.Context, id string) (Job, error) {
	slot, _, ok := slot(id)
	if !ok {
		return Job{}, ErrNoJob
	}
	job, _, err := j.read(ctx, slot)
	if err == nil && job.ID != id {
		err = ErrNoJob
	}
	return job, err
}

// read reads the last job of a slot. One without updates is shown as failed. revision is 0 with ErrNoJob.
func (j *Jobs) read(ctx context.Context, slot string) (job Job, revision uint64, err error) {
	kv, err := j.JetStream.KeyValue(ctx, topology.JobsBucket)
	if err != nil {
		return job, 0, fmt.Errorf("opening the bucket of jobs: %w", err)
	}
	entry, err := kv.Get(ctx, slot)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return job, 0, ErrNoJob
	case err != nil:
		return job, 0, fmt.Errorf("reading the job: %w", err)
	}
	if err := json.Unmarshal(entry.Value(), &job); err != nil {
		return job, entry.Revision(), fmt.Errorf("the stored job %s cannot be read: %w", slot, err)
	}
	if !job.Ended() && j.Clock.Now().Sub(entry.Created()) > jobDead {
		why := "the server that ran it stopped or is cut off"
		if job.State == JobWaiting {
			why = "no server took it: it takes a server with " + jobKinds[job.Kind]
		}
		job.State, job.Error = JobFailed, why
	}
	return job, entry.Revision(), nil
}

// write replaces a revision, 0 = none. A change of many coupons is kept for JobsFor: there may be as many as keys.
func (j *Jobs) write(ctx context.Context, job *Job, revision uint64) (uint64, error) {
	value, err := json.Marshal(job)
	if err != nil {
		return 0, fmt.Errorf("encoding the job: %w", err)
	}
	opts := []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithExpectStream(topology.JobsStream)}
	if job.Kind == CouponsJob {
		opts = append(opts, jetstream.WithMsgTTL(topology.JobsFor))
	}
	ack, err := j.JetStream.Publish(ctx, "$KV."+topology.JobsBucket+"."+job.slot(), value, opts...)
	if err != nil {
		return 0, fmt.Errorf("storing the job: %w", err)
	}
	return ack.Sequence, nil
}

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
	progress, ended, kept := make(chan JobProgress, 1), make(chan struct{}), job.Progress
	var result any
	var failed error
	go func() {
		defer close(ended)
		run := JobRun{ID: job.ID, Action: job.Action, Request: job.Request, By: job.By, RequestID: job.RequestID, Report: func(p JobProgress) {
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
updates:
	for working.Err() == nil {
		select {
		case <-ended:
			break updates
		case p := <-progress:
			job.Progress = &p
			continue
		case <-tick.C:
		}
		job.Updated = j.Clock.Now().UTC()
		if revision, err = j.update(working, &job, revision); errors.Is(err, errTaken) {
			cancel(errTaken)
		} else if err != nil {
			logger.Warn("the job's progress was not stored; it goes on", "err", err)
		}
	}
	<-ended
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
	if next, err = j.write(ctx, job, next); natsx.IsWrongSequence(err) {
		err = errors.Join(natsx.ErrAgain, err) // it was read from a replica that lags
	}
	return max(next, revision), err
}

// end stores the end of a job and records it.
func (j *Jobs) end(ctx context.Context, job Job, revision uint64, result any, failed error) {
	limit := jobEnd
	if ctx.Err() != nil {
		limit = jobStopped
		if failed != nil {
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
		job.State, job.Error = JobRefused, failed.Error()
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
	if job.State != JobFailed {
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
