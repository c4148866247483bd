package ops

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// A slot is a key of the bucket of jobs. It has one job at a time, and keeps the last one. Changes of many coupons have a slot for each
// client, so that none waits for the campaign of another one; all other jobs have one for their kind.
//
//	verify-ABC        in slot verify
//	coupons-KEY-ABC   in slot coupons-KEY

// mostChanges is how many changes of many coupons may run at once in all servers.
const mostChanges = 4

var validSlot = regexp.MustCompile(`^[a-z]+(-[a-z2-7]{10})?$`)

// slotOf is the slot of a job that a caller starts.
func slotOf(kind string, who Caller) string {
	if kind != CouponsJob {
		return kind
	}
	client := who.Client()
	if client == "" {
		client = "local " + who.Name // the credentials of the data directory
	}
	sum := sha256.Sum256([]byte(client))
	return kind + "-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:10])
}

// slot is the slot of a job with that id, and its kind; ok is false if no job has such an id.
func slot(id string) (slot, kind string, ok bool) {
	slot = id[:max(0, strings.LastIndexByte(id, '-'))]
	kind, _, _ = strings.Cut(slot, "-")
	return slot, kind, jobKinds[kind] != "" && validSlot.MatchString(slot)
}

// slot is described at the function of that name.
func (j *Job) slot() string {
	slot, _, _ := slot(j.ID)
	return slot
}

// dry reports whether the job changes nothing: it is not in the audit stream.
func (j *Job) dry() bool {
	var q struct {
		DryRun bool `json:"dry_run"`
	}
	return json.Unmarshal(j.Request, &q) == nil && q.DryRun
}

// slots are those in use.
func (j *Jobs) slots(ctx context.Context) ([]string, error) {
	kv, err := j.JetStream.KeyValue(ctx, topology.JobsBucket)
	if err != nil {
		return nil, fmt.Errorf("opening the bucket of jobs: %w", err)
	}
	all, err := kv.Keys(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoKeysFound) {
		return nil, fmt.Errorf("listing the jobs: %w", err)
	}
	return slices.DeleteFunc(all, func(slot string) bool { return !validSlot.MatchString(slot) }), nil
}

// List returns the last job of each slot, newest first.
func (j *Jobs) List(ctx context.Context) ([]Job, error) {
	slots, err := j.slots(ctx)
	if err != nil {
		return nil, err
	}
	all := []Job{}
	for _, slot := range slots {
		job, _, err := j.read(ctx, slot)
		switch {
		case err == nil:
			all = append(all, job)
		case !errors.Is(err, ErrNoJob):
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b Job) int { return b.Started.Compare(a.Started) })
	return all, nil
}

// crowded refuses a change of many coupons while as many run as may. Two that are started in the same moment may both run.
func (j *Jobs) crowded(ctx context.Context) error {
	all, err := j.List(ctx)
	if err != nil {
		return err
	}
	running := 0
	for i := range all {
		if all[i].Kind == CouponsJob && !all[i].Ended() {
			running++
		}
	}
	if running >= mostChanges {
		return &Refusal{Code: Busy, Message: fmt.Sprintf("%d changes of many coupons run, of other keys, and no more may; wait until one ends, see scrip job list", running)}
	}
	return nil
}

// busy refuses a job while another of its slot runs.
func busy(running *Job) error {
	of := "of this kind"
	if running.Kind == CouponsJob {
		of = "of this key"
	}
	return &Refusal{Code: Busy, Message: fmt.Sprintf("job %s %s runs already, started by %s at %s; wait until it ends, or stop it: scrip job stop %s",
		running.ID, of, wire.Shorten(running.By, 64), running.Started.Format(time.RFC3339), running.ID)}
}
