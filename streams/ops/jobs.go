package ops

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/once"
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
	JobStopped JobState = "stopped" // by a person
)

// JobStates are they.
var JobStates = []JobState{JobWaiting, JobRunning, JobDone, JobFailed, JobRefused, JobStopped}

// JobKinds returns the kinds of jobs, in order.
func JobKinds() []string { return slices.Sorted(maps.Keys(jobKinds)) }

const (
	// jobDead is how long a job may have no update before its server is taken for dead.
	jobDead = 15 * time.Second
	// jobResumed is how long the same request goes on where a job has failed.
	jobResumed = 24 * time.Hour
)

// Job is a long action that a server does, whether its caller waits or not.
type Job struct {
	ID     string   `json:"id"`
	Kind   string   `json:"kind"`
	Action string   `json:"action" doc:"Such as rebuild.start."`
	State  JobState `json:"state" enum:"waiting,running,done,failed,refused,stopped" doc:"refused: nothing was changed."`
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
	Progress *JobProgress    `json:"progress,omitempty" doc:"While it runs, and of a job that failed or was stopped."`
	Result   json.RawMessage `json:"result,omitempty" doc:"Of a job that is done, in the form of its kind; of a change of coupons also what it did before it failed or was stopped."`
	Error    string          `json:"error,omitempty"`
	// StoppedBy is who requested a stop. The server that runs it sees that at its next update.
	StoppedBy string `json:"stopped_by,omitempty" doc:"Who requested a stop: the job ends as stopped within seconds, unless it ends in another way before."`

	alive time.Time // when its server last stored it, or who started it; of a job that was read
}

// storedJob is a job in the bucket. A stop is not an update by the server of the job, and keeps the time of that.
type storedJob struct {
	*Job
	Alive time.Time `json:"alive,omitzero"`
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

// repeats reports whether a job is the same request again as the last one, which is remembered for as long.
func (j *Job) repeats(last *Job) bool {
	return j.Started.Sub(last.Started) < topology.OnceFor && j.Action == last.Action && bytes.Equal(j.Request, last.Request)
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
	// Stop is closed when a stop was requested. Work of kind CouponsJob looks at it between its batches; for all others their context
	// ends then.
	Stop <-chan struct{}
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
//	Stop  ──>                    stopped_by                ────────>
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
	job := Job{ID: slot + "-" + nameOf(who)[:nameInID], Kind: kind, Action: action, State: JobWaiting, By: who.Name, Key: who.ID,
		RequestID: who.Request, Request: body, Started: now, Updated: now}
	last, revision, err := j.read(ctx, slot)
	switch {
	case err != nil && !errors.Is(err, ErrNoJob):
		return Job{}, err
	case err == nil && job.resumes(&last):
		job.ID, job.Progress = last.ID, last.Progress
	case err == nil && last.ID == job.ID && !job.repeats(&last):
		return Job{}, once.ErrReused
	case err == nil && last.ID == job.ID: // the answer to its first request was lost
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
	if natsx.IsWrongSequence(err) { // another was started in this moment, or this one by a copy of its request
		last, _, err = j.read(ctx, slot)
		switch {
		case err == nil && last.ID == job.ID && job.repeats(&last):
			return last, nil
		case err == nil:
			err = busy(&last)
		}
		return Job{}, err
	}
	if err != nil {
		return Job{}, &Refusal{Code: UnknownOutcome, Message: fmt.Sprintf("job %s may have been started: %s; see scrip job list", job.ID, err)}
	}
	return job, nil
}

// nameInID is how much of a name the id of a job has.
const nameInID = 10

// nameOf is a name for what a request makes: the same one for a retry of it, as long as the request is remembered.
func nameOf(who Caller) string { return cmp.Or(who.Makes, strings.ToLower(rand.Text()[:20])) }

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
	stored := storedJob{Job: &job}
	if err := json.Unmarshal(entry.Value(), &stored); err != nil {
		return job, entry.Revision(), fmt.Errorf("the stored job %s cannot be read: %w", slot, err)
	}
	if job.alive = stored.Alive; job.alive.IsZero() {
		job.alive = entry.Created()
	}
	if !job.Ended() && j.Clock.Now().Sub(job.alive) > jobDead {
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
	value, err := json.Marshal(storedJob{job, job.alive})
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
