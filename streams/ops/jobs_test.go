package ops

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth/authtest"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/once"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

func TestMain(m *testing.M) { streamtest.VerifyTestMain(m) }

var ann = Caller{Principal: access.Principal{ID: "01h8z3qk", Name: "ann", Role: access.Operator}, Via: "http"}

// jobRig is a log whose jobs several servers run.
type jobRig struct {
	*testing.T
	js jetstream.JetStream
}

func newJobRig(t *testing.T) *jobRig {
	js := streamtest.Start(t, authtest.Servers(1)).JetStream(t)
	if _, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: 1, KeyFingerprint: "k", CmdMaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	return &jobRig{t, js}
}

func (r *jobRig) at(server string, clock wall.Clock, work map[string]JobWork) *Jobs {
	return &Jobs{JetStream: r.js, Server: server, Work: work, Audit: audit.Open(r.js, nil), Clock: clock, Logger: streamtest.Logger(r.T)}
}

// serve runs jobs at a server until the test ends or stop is called.
func (r *jobRig) serve(server string, work map[string]JobWork) (stop func()) {
	return streamtest.Background(r.T, r.at(server, wall.Machine, work).Run)
}

func (r *jobRig) start(j *Jobs, action string, request any) Job {
	r.Helper()
	job, err := j.Start(r.Context(), ann, action, request)
	if err != nil {
		r.Fatal(err)
	}
	return job
}

// becomes waits until a job has a state, and returns it.
func (r *jobRig) becomes(j *Jobs, id string, state JobState) (job Job) {
	r.Helper()
	streamtest.Eventually(r.T, "job "+id+" is "+string(state), func() bool {
		var err error
		if job, err = j.Show(r.Context(), id); err != nil {
			r.Fatal(err)
		}
		return job.State == state
	})
	return job
}

// TestAJobRunsOnceAtOneServer: whoever started it, with progress, a result, and entries in the audit stream; a second one of its kind
// is refused while it runs, at every server.
func TestAJobRunsOnceAtOneServer(t *testing.T) {
	r := newJobRig(t)
	goOn := make(chan struct{})
	runs := make(chan JobRun, 10)
	work := map[string]JobWork{RebuildJob: func(ctx context.Context, run JobRun) (any, error) {
		runs <- run
		run.Report(JobProgress{Phase: "loading", Done: 1, Total: 2})
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		return map[string]int{"events": 7}, nil
	}}
	r.serve("one", work)
	r.serve("two", work)
	caller := r.at("three", wall.Machine, nil)
	job := r.start(caller, "rebuild.start", map[string]string{"schema": "copy"})
	if !strings.HasPrefix(job.ID, "rebuild-") || job.State != JobWaiting {
		t.Errorf("started %+v", job)
	}
	run := <-runs
	if run.Action != "rebuild.start" || string(run.Request) != `{"schema":"copy"}` || run.By != "ann" {
		t.Errorf("runs %+v", run)
	}
	streamtest.Eventually(t, "progress is shown", func() bool {
		job, err := caller.Show(t.Context(), job.ID)
		return err == nil && job.State == JobRunning && job.Progress != nil && job.Progress.Phase == "loading" && job.Progress.Done == 1 && job.Progress.Total == 2
	})
	var no *Refusal
	if _, err := r.at("two", wall.Machine, nil).Start(t.Context(), ann, "rebuild.undo", nil); !errors.As(err, &no) || no.Code != Busy || !strings.Contains(no.Message, job.ID) {
		t.Errorf("a second rebuild: %v", err)
	}
	close(goOn)
	if done := r.becomes(caller, job.ID, JobDone); string(done.Result) != `{"events":7}` || done.Error != "" || done.Progress != nil {
		t.Errorf("done %+v", done)
	}
	if len(runs) != 0 {
		t.Error("it ran twice")
	}
	next := r.start(caller, "rebuild.undo", nil)
	r.becomes(caller, next.ID, JobDone)
	if _, err := caller.Show(t.Context(), job.ID); !errors.Is(err, ErrNoJob) {
		t.Errorf("the job before the last: %v", err)
	}
	if all, err := caller.List(t.Context()); err != nil || len(all) != 1 || all[0].ID != next.ID {
		t.Errorf("%+v, %v", all, err)
	}
	entries, _, err := audit.Open(r.js, nil).Read(t.Context(), audit.Filter{Kind: audit.Jobs, Actor: "ann"}, 10)
	if err != nil || len(entries) != 4 || entries[3].Action != "rebuild.start" || !strings.HasPrefix(entries[3].About, job.ID+` {"schema"`) || entries[2].Action != "rebuild.start done" {
		t.Errorf("recorded %+v, %v", entries, err)
	}
}

// TestHowAJobEnds: by an error, a refusal, a stop of its server, its death, and without any server that runs it.
func TestHowAJobEnds(t *testing.T) {
	r := newJobRig(t)
	caller := r.at("caller", wall.Machine, nil)
	verify := errors.New("the disk is full")
	started := make(chan struct{}, 1)
	stop := r.serve("one", map[string]JobWork{
		VerifyJob: func(context.Context, JobRun) (any, error) { return nil, verify },
		BackupJob: func(context.Context, JobRun) (any, error) { return strings.Repeat("x", mostResult), nil },
		RebuildJob: func(ctx context.Context, _ JobRun) (any, error) {
			started <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	if job := r.becomes(caller, r.start(caller, "verify.start", nil).ID, JobFailed); job.Error != "the disk is full" {
		t.Errorf("%+v", job)
	}
	verify = &Refusal{Message: "schema copy exists"}
	if job := r.becomes(caller, r.start(caller, "verify.start", nil).ID, JobRefused); job.Error != "schema copy exists" {
		t.Errorf("%+v", job)
	}
	if job := r.becomes(caller, r.start(caller, "backup.start", nil).ID, JobFailed); !strings.Contains(job.Error, "smaller limit") {
		t.Errorf("%+v", job)
	}
	stopped := r.start(caller, "rebuild.start", nil)
	<-started
	stop()
	if job := r.becomes(caller, stopped.ID, JobFailed); !strings.Contains(job.Error, "was stopped") {
		t.Errorf("%+v", job)
	}
	// Now no server runs anything.
	job := r.start(caller, "rebuild.start", nil)
	later := streamtest.NewClock()
	later.Move(jobDead + time.Second)
	watcher := r.at("watcher", later, nil)
	if got, err := watcher.Show(t.Context(), job.ID); err != nil || got.State != JobFailed || !strings.Contains(got.Error, "the role projector") {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := caller.Start(t.Context(), ann, "rebuild.start", nil); err == nil {
		t.Error("another one is started before it is overdue")
	}
	job.State, job.Server = JobRunning, "one"
	last, revision, err := caller.read(t.Context(), RebuildJob)
	if err != nil || last.ID != job.ID {
		t.Fatal(last, err)
	}
	if _, err := caller.write(t.Context(), &job, revision); err != nil {
		t.Fatal(err)
	}
	if got, err := watcher.Show(t.Context(), job.ID); err != nil || got.State != JobFailed || !strings.Contains(got.Error, "stopped or is cut off") {
		t.Errorf("%+v, %v", got, err)
	}
	r.serve("one", map[string]JobWork{RebuildJob: func(context.Context, JobRun) (any, error) { return nil, nil }}) // the same server again
	if got := r.becomes(caller, job.ID, JobFailed); !strings.Contains(got.Error, "the server that ran it ended") {
		t.Errorf("%+v", got)
	}
	if next := r.start(caller, "rebuild.start", nil); next.ID == job.ID {
		t.Error("after a dead server its job is started again")
	}
	if _, err := caller.Show(t.Context(), "coffee-1"); !errors.Is(err, ErrNoJob) {
		t.Errorf("a job of no kind: %v", err)
	}
}

// TestTheRetryOfAStartFindsItsJob, also while it runs. A name that has another request, or is older than a day, starts nothing.
func TestTheRetryOfAStartFindsItsJob(t *testing.T) {
	r := newJobRig(t)
	clock := streamtest.NewClock()
	j, who := r.at("a", clock, nil), ann
	who.Makes = "abcdefghijklmnopqrst"
	first, err := j.Start(t.Context(), who, "verify.start", None{})
	streamtest.Must(t, err)
	if again, err := j.Start(t.Context(), who, "verify.start", None{}); err != nil || again.ID != first.ID || !again.Started.Equal(first.Started) {
		t.Errorf("%+v, %v, want %+v", again, err, first)
	}
	if _, err := j.Start(t.Context(), who, "verify.start", VerifyTables{Repair: true}); !errors.Is(err, once.ErrReused) {
		t.Errorf("another request is answered %v", err)
	}
	other := who
	other.Makes = "tsrqponmlkjihgfedcba"
	if _, err := j.Start(t.Context(), other, "verify.start", None{}); err == nil || RefusalOf(err).Code != Busy {
		t.Errorf("another start is answered %v", err)
	}
	clock.Move(topology.OnceFor)
	if _, err := j.Start(t.Context(), who, "verify.start", None{}); !errors.Is(err, once.ErrReused) {
		t.Errorf("after a day it is answered %v", err)
	}
}

// hookedClock calls at when it is read for the second time: a start of a job has read its slot then, whose last job has no updates.
type hookedClock struct {
	wall.Clock
	reads int
	at    func()
}

func (c *hookedClock) Now() time.Time {
	if c.reads++; c.reads == 2 {
		c.at()
	}
	return c.Clock.Now()
}

// TestTwoCopiesOfAStart at once start one job, and both are answered with it. Another start in the same moment is Busy.
func TestTwoCopiesOfAStart(t *testing.T) {
	r := newJobRig(t)
	later := streamtest.NewClock()
	r.start(r.at("a", later, nil), "verify.start", VerifyTables{Repair: true})
	for _, names := range [][2]string{{"abcdefghijklmnopqrst", "abcdefghijklmnopqrst"}, {"bcdefghijklmnopqrstu", "cdefghijklmnopqrstuv"}} {
		later.Move(2 * jobDead)
		first, second := ann, ann
		first.Makes, second.Makes = names[0], names[1]
		var other Job
		clock := &hookedClock{Clock: later, at: func() {
			var err error
			other, err = r.at("b", later, nil).Start(t.Context(), second, "verify.start", None{})
			streamtest.Must(t, err)
		}}
		job, err := r.at("a", clock, nil).Start(t.Context(), first, "verify.start", None{})
		switch copied := names[0] == names[1]; {
		case other.ID == "":
			t.Fatal("no other start in that moment")
		case copied && (err != nil || job.ID != other.ID):
			t.Errorf("a copy is answered %s, %v, want %s", job.ID, err, other.ID)
		case !copied && (err == nil || RefusalOf(err).Code != Busy):
			t.Errorf("another start is answered %s, %v", job.ID, err)
		}
	}
}

// TestAKeyUsedAgainAfterItsDay goes over every action that starts a job. Within the day the same request finds its job, and another one
// is refused; after it each starts a job under an id of its own, so that none of its commands is a repeat of the first one's.
func TestAKeyUsedAgainAfterItsDay(t *testing.T) {
	r := newJobRig(t)
	requests := map[string][2]string{
		"rebuild.start":  {`{"schema":"monday"}`, `{"schema":"tuesday"}`},
		"rebuild.undo":   {`{}`, `{}`},
		"rebuild.drop":   {`{}`, `{}`},
		"verify.start":   {`{"campaign":"monday"}`, `{"campaign":"tuesday"}`},
		"backup.start":   {`{"name":"monday"}`, `{"name":"tuesday"}`},
		"coupons.void":   {`{"campaign":"c","n":[1],"most":1}`, `{"campaign":"c","n":[2],"most":1}`},
		"coupons.extend": {`{"campaign":"c","all":true,"most":1,"expires_at":"2031-01-01T00:00:00Z"}`, `{"campaign":"c","all":true,"most":1,"expires_at":"2032-01-01T00:00:00Z"}`},
	}
	runs := make(chan string, 10*len(Actions))
	work := func(_ context.Context, run JobRun) (any, error) {
		runs <- run.ID
		return None{}, nil
	}
	lanes, err := r.js.Conn().Subscribe("scrip.campaign.show", func(m *nats.Msg) { _ = m.Respond([]byte(`{"data":{}}`)) })
	streamtest.Must(t, err)
	defer func() { _ = lanes.Unsubscribe() }()
	o := &Ops{Jobs: r.at("one", wall.Machine, map[string]JobWork{RebuildJob: work, VerifyJob: work, BackupJob: work, CouponsJob: work}),
		Once: once.Open(r.js, [32]byte{7}, "log"), Audit: audit.Open(r.js, nil), Queries: client.New(r.js.Conn(), client.Options{})}
	stop := streamtest.Background(t, o.Jobs.Run)
	forget := func() { // as after a day
		if _, ok, err := o.Once.Take(t.Context(), "request "+ann.Client()+" nightly"); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	for i := range Actions {
		a := &Actions[i]
		if a.Answer != reflect.TypeFor[Job]() || a.Reads || a.Name == "job.stop" {
			continue
		}
		q, listed := requests[a.Name]
		if !listed {
			t.Errorf("no requests of %s", a.Name)
			continue
		}
		start := func(key, request string) (Job, error) {
			who, fields := ann, Fields{}
			streamtest.Must(t, json.Unmarshal([]byte(request), &fields))
			who.Once = key
			answer, err := a.Do(t.Context(), o, who, fields)
			if again, ok := answer.(*Replayed); ok {
				answer = again.Answer
			}
			job, _ := answer.(Job)
			if err == nil {
				r.becomes(o.Jobs, job.ID, JobDone)
			}
			return job, err
		}
		ids := map[string]string{}
		made := func(what, key, request string) {
			t.Helper()
			job, err := start(key, request)
			if err != nil {
				t.Fatalf("%s, %s: %v", a.Name, what, err)
			}
			if was := ids[job.ID]; was != "" {
				t.Errorf("%s, %s: it is answered with job %s of %s", a.Name, what, job.ID, was)
			}
			ids[job.ID] = what
			var got, want any
			_, _ = json.Unmarshal(job.Request, &got), json.Unmarshal([]byte(request), &want)
			for name, value := range want.(map[string]any) {
				if have := got.(map[string]any)[name]; !reflect.DeepEqual(have, value) {
					t.Errorf("%s, %s: its job has %s %v, want %v", a.Name, what, name, have, value)
				}
			}
			if key == "" {
				return
			}
			if again, err := start(key, request); err != nil || again.ID != job.ID {
				t.Errorf("%s, %s, sent again: %s, %v, want %s", a.Name, what, again.ID, err, job.ID)
			}
			if request == q[1] {
				return
			}
			if _, err := start(key, q[1]); err == nil || RefusalOf(err).Code != wire.IdempotencyKeyReused {
				t.Errorf("%s, %s, with another request: %v", a.Name, what, err)
			}
		}
		made("the first", "nightly", q[0])
		forget()
		made("the next day", "nightly", q[1])
		made("one between", "", q[0])
		forget()
		made("a day later, after another one", "nightly", q[0])
		forget()
	}
	stop()
	close(runs)
	ran := map[string]bool{}
	for id := range runs {
		if ran[id] {
			t.Errorf("%s ran twice", id)
		}
		ran[id] = true
	}
}

// TestAJobGoesOn: the same request of the same user goes on from what a run that failed has kept, under its id; another one starts from the beginning.
func TestAJobGoesOn(t *testing.T) {
	r := newJobRig(t)
	runs := make(chan JobRun, 1)
	fails := errors.New("the lane is away")
	r.serve("one", map[string]JobWork{CouponsJob: func(_ context.Context, run JobRun) (any, error) {
		runs <- run
		run.Report(JobProgress{Phase: "changing", Kept: []byte(`{"after":7}`)})
		return nil, fails
	}})
	caller := r.at("caller", wall.Machine, nil)
	start := func(action, request string, kept string) string {
		t.Helper()
		job := r.start(caller, action, map[string]string{"campaign": request})
		if run := <-runs; run.ID != job.ID || string(run.Kept) != kept {
			t.Errorf("%s of %s: runs %s from %s, want %s", action, request, run.ID, run.Kept, kept)
		}
		r.becomes(caller, job.ID, JobFailed)
		return job.ID
	}
	first := start("coupons.void", "a", "")
	if again := start("coupons.void", "a", `{"after":7}`); again != first {
		t.Errorf("job %s goes on as %s", first, again)
	}
	if other := start("coupons.void", "b", ""); other == first {
		t.Error("another request goes on")
	}
	start("coupons.extend", "b", "")
	fails = nil
	job := r.start(caller, "coupons.extend", map[string]string{"campaign": "b"})
	<-runs
	if job = r.becomes(caller, job.ID, JobDone); job.Progress != nil {
		t.Errorf("%+v", job)
	}
	last := r.start(caller, "coupons.extend", map[string]string{"campaign": "b"})
	if run := <-runs; last.ID == job.ID || run.Kept != nil {
		t.Error("a job that is done goes on")
	}
	r.becomes(caller, last.ID, JobDone)
}
