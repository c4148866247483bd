package ops

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// TestAKeyHoldsNoSlotOfOthers: changes of many coupons run side by side, one of each key, and no more than a few. A key and those that
// replaced it are one. A dry run changes nothing, and is not in the audit stream.
func TestAKeyHoldsNoSlotOfOthers(t *testing.T) {
	r := newJobRig(t)
	goOn, runs := make(chan struct{}), make(chan JobRun, 10)
	stop := r.serve("one", map[string]JobWork{CouponsJob: func(ctx context.Context, run JobRun) (any, error) {
		runs <- run
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		return CouponsChanged{Matched: 1}, nil
	}})
	j := r.at("caller", wall.Machine, nil)
	key := func(id string) Caller {
		return Caller{Principal: access.Principal{ID: id, Name: "key " + id, Role: access.Support, Campaigns: []string{"winter"}}, Via: "http"}
	}
	start := func(who Caller, campaign string, dry bool) (Job, error) {
		return j.Start(t.Context(), who, "coupons.void", map[string]any{"campaign": campaign, "dry_run": dry})
	}
	var all []Job
	var no *Refusal
	for i := range mostChanges {
		who := key(fmt.Sprintf("0000000%d", i))
		job, err := start(who, "winter", i == 0)
		if err != nil {
			t.Fatalf("job %d: %v", i, err)
		}
		all = append(all, job)
		<-runs
		if _, err := start(who, "summer", false); !errors.As(err, &no) || no.Code != Busy {
			t.Errorf("another job of the same key: %v", err)
		}
	}
	rotated := key("0000000r")
	rotated.First = "00000000"
	for _, who := range []Caller{rotated, ann} {
		if _, err := start(who, "summer", false); !errors.As(err, &no) || no.Code != Busy {
			t.Errorf("%s starts while as many run as may: %v", who.Name, err)
		}
	}
	if listed, err := j.List(t.Context()); err != nil || len(listed) != mostChanges {
		t.Errorf("listed %+v, %v", listed, err)
	}
	close(goOn)
	for _, job := range all {
		r.becomes(j, job.ID, JobDone)
	}
	job, err := start(ann, "summer", false)
	streamtest.Must(t, err)
	r.becomes(j, job.ID, JobDone)
	stop() // an entry is stored after the end of its job
	for id, who := range map[string]int{"00000000": 0, "00000001": 2} {
		entries, _, err := audit.Open(r.js, nil).Read(t.Context(), audit.Filter{Actor: id}, 10)
		if err != nil || len(entries) != who {
			t.Errorf("key %s is recorded %d times, want %d: %v", id, len(entries), who, err)
		}
	}
	for _, id := range []string{"coupons-x", "coupons-", "coupons-a.b-c", "-", "", "coupons-*-x"} {
		if _, err := j.Show(t.Context(), id); !errors.Is(err, ErrNoJob) {
			t.Errorf("job %q: %v", id, err)
		}
	}
}
