package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// TestStopAJob, at whichever server it runs: it ends as stopped, with how far it was and what it left. Once more, and after its end, a
// stop changes nothing. It is recorded once. Work that ends in spite of it is done.
func TestStopAJob(t *testing.T) {
	r := newJobRig(t)
	goOn, reported := make(chan struct{}), make(chan struct{}, 1)
	stop := r.serve("one", map[string]JobWork{
		RebuildJob: func(ctx context.Context, run JobRun) (any, error) {
			run.Report(JobProgress{Phase: "loading", Done: 3, Total: 10, Events: 7})
			reported <- struct{}{}
			<-ctx.Done()
			return nil, fmt.Errorf("loading: %w; the tables are kept", ctx.Err())
		},
		VerifyJob: func(_ context.Context, run JobRun) (any, error) {
			<-run.Stop
			<-goOn
			return None{}, nil
		},
		BackupJob: func(context.Context, JobRun) (any, error) { return None{}, errors.New("the disk is full") },
	})
	o := &Ops{Jobs: r.at("caller", wall.Machine, nil)}
	sue := ann
	sue.Name = "sue"
	rebuild := r.start(o.Jobs, "rebuild.start", None{})
	<-reported
	limited := Caller{Principal: access.Principal{ID: "s", Name: "s", Role: access.Support}}
	if _, err := o.StopJob(t.Context(), limited, NamedJob{rebuild.ID}); !errors.Is(err, ErrNoJob) {
		t.Errorf("by a key that may not start it: %v", err)
	}
	for range 2 {
		if job, err := o.StopJob(t.Context(), sue, NamedJob{rebuild.ID}); err != nil || job.StoppedBy != "sue" {
			t.Errorf("%+v, %v", job, err)
		}
	}
	got := r.becomes(o.Jobs, rebuild.ID, JobStopped)
	streamtest.Equal(t, "why it ended", got.Error, "stopped by sue: loading: context canceled; the tables are kept")
	if p := got.Progress; p == nil || p.Phase != "loading" || p.Done != 3 || p.Total != 10 || p.Events != 7 || got.Result != nil {
		t.Errorf("it was at %+v, with the result %s", p, got.Result)
	}
	if again, err := o.StopJob(t.Context(), ann, NamedJob{rebuild.ID}); err != nil || again.State != JobStopped || again.StoppedBy != "sue" {
		t.Errorf("a job that was stopped, again: %+v, %v", again, err)
	}

	verify := r.start(o.Jobs, "verify.start", None{})
	r.becomes(o.Jobs, verify.ID, JobRunning)
	if _, err := o.StopJob(t.Context(), sue, NamedJob{verify.ID}); err != nil {
		t.Error(err)
	}
	close(goOn)
	if got := r.becomes(o.Jobs, verify.ID, JobDone); got.StoppedBy != "sue" || got.Error != "" || got.Progress != nil {
		t.Errorf("work that ends in spite of a stop: %+v", got)
	}

	backup := r.start(o.Jobs, "backup.start", None{})
	r.becomes(o.Jobs, backup.ID, JobFailed)
	if got, err := o.StopJob(t.Context(), sue, NamedJob{backup.ID}); err != nil || got.State != JobFailed || got.StoppedBy != "" {
		t.Errorf("a job that failed: %+v, %v", got, err)
	}
	stop() // an entry is stored after the end of its job

	// No server has taken this one, and none does later.
	waiting := r.start(o.Jobs, "rebuild.undo", None{})
	if got, err := o.StopJob(t.Context(), sue, NamedJob{waiting.ID}); err != nil || got.State != JobStopped || got.Error != "stopped by sue" {
		t.Errorf("a job that waits: %+v, %v", got, err)
	}
	runs := make(chan JobRun, 1)
	r.serve("two", map[string]JobWork{RebuildJob: func(_ context.Context, run JobRun) (any, error) {
		runs <- run
		return None{}, nil
	}})
	next := r.start(o.Jobs, "rebuild.drop", None{})
	if run := <-runs; run.ID != next.ID {
		t.Errorf("a job that was stopped runs: %+v", run)
	}
	if _, err := o.StopJob(t.Context(), sue, NamedJob{waiting.ID}); !errors.Is(err, ErrNoJob) {
		t.Errorf("a job that another one has replaced: %v", err)
	}
	entries, _, err := audit.Open(r.js, nil).Read(t.Context(), audit.Filter{Kind: audit.Jobs}, 100)
	streamtest.Must(t, err)
	recorded := []string{}
	for _, e := range slices.Backward(entries) {
		if e.Action == "job.stop" || e.Action == "rebuild.start stopped" || e.Action == "verify.start done" {
			recorded = append(recorded, e.Actor+" "+e.Action+" "+e.About)
		}
	}
	streamtest.Equal(t, "recorded", fmt.Sprintf("%q", recorded), fmt.Sprintf("%q", []string{"sue job.stop " + rebuild.ID, "ann rebuild.start stopped " + rebuild.ID + " " + got.Error,
		"sue job.stop " + verify.ID, "ann verify.start done " + verify.ID, "sue job.stop " + waiting.ID}))
}

// TestStopAChangeOfManyCoupons: it ends when it looks at the stop, with what it did, also while its server stops. The same request again
// is another job, from the beginning.
func TestStopAChangeOfManyCoupons(t *testing.T) {
	r := newJobRig(t)
	runs, seen, goOn := make(chan JobRun, 1), make(chan struct{}), make(chan struct{})
	stop := r.serve("one", map[string]JobWork{CouponsJob: func(ctx context.Context, run JobRun) (any, error) {
		runs <- run
		run.Report(JobProgress{Phase: "changing", Done: 1000, Total: 5000, Kept: []byte(`{"after":1000}`)})
		<-run.Stop
		if ctx.Err() != nil {
			t.Error("a stop ends the batch under way")
		}
		seen <- struct{}{}
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		return CouponsChanged{Matched: 5000, Done: 1000}, errStopped
	}})
	j := r.at("caller", wall.Machine, nil)
	request := map[string]string{"campaign": "a"}
	first := r.start(j, "coupons.void", request)
	<-runs
	if _, err := j.Stop(t.Context(), ann, first.ID); err != nil {
		t.Fatal(err)
	}
	<-seen
	goOn <- struct{}{}
	got := r.becomes(j, first.ID, JobStopped)
	if want := `{"matched":5000,"done":1000,"repeated":0,"behind":null}`; string(got.Result) != want || got.Error != "stopped by ann" {
		t.Errorf("%s, %s, want %s", got.Result, got.Error, want)
	}
	second := r.start(j, "coupons.void", request)
	if run := <-runs; second.ID == first.ID || run.Kept != nil {
		t.Errorf("the same request goes on as %s from %s", second.ID, run.Kept)
	}
	if _, err := j.Stop(t.Context(), ann, second.ID); err != nil {
		t.Fatal(err)
	}
	<-seen
	stop()
	r.becomes(j, second.ID, JobStopped)
}

// TestWhatAStopMeets: the server of the job may be dead, or die before it sees the stop.
func TestWhatAStopMeets(t *testing.T) {
	r := newJobRig(t)
	j := r.at("caller", wall.Machine, nil)
	job := r.start(j, "verify.start", None{})
	_, revision, err := j.read(t.Context(), VerifyJob)
	streamtest.Must(t, err)
	job.State, job.Server = JobRunning, "dead"
	_, err = j.write(t.Context(), &job, revision)
	streamtest.Must(t, err)
	running, _, err := j.read(t.Context(), VerifyJob)
	streamtest.Must(t, err)
	later := streamtest.NewClock()
	later.Move(jobDead + time.Second)
	watcher := r.at("watcher", later, nil)
	if got, err := watcher.Stop(t.Context(), ann, job.ID); err != nil || got.State != JobFailed || got.StoppedBy != "" {
		t.Errorf("of a dead server: %+v, %v", got, err)
	}
	if got, err := j.Stop(t.Context(), ann, job.ID); err != nil || got.State != JobRunning || got.StoppedBy != "ann" {
		t.Errorf("before it is seen: %+v, %v", got, err)
	}
	due := r.at("watcher", streamtest.ClockAt(running.alive.Add(jobDead+1)), nil)
	if got, err := due.Show(t.Context(), job.ID); err != nil || got.State != JobFailed {
		t.Errorf("a stop makes a dead server live on: %+v, %v", got, err)
	}
	r.serve("dead", map[string]JobWork{VerifyJob: func(context.Context, JobRun) (any, error) { return nil, nil }})
	if got := r.becomes(j, job.ID, JobFailed); got.StoppedBy != "ann" {
		t.Errorf("when its server is back: %+v", got)
	}
}
