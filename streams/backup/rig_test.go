package backup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/load"
	"github.com/seed-4a2410e3/scrip/streams/scheduler"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/snapstore"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

const (
	lanes      = 2
	answerWait = 3 * time.Minute
)

var testKey = [32]byte{1, 2, 3}

// rig is a log on a server, and its owner.
type rig struct {
	t   *testing.T
	js  jetstream.JetStream
	log topology.Log
	run []*worker
}

type worker struct {
	*lane.Lane
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// newRig makes a log, or finds the one that is there, with so many copies of it.
func newRig(t *testing.T, js jetstream.JetStream, replicas int) *rig {
	t.Helper()
	r := &rig{t: t, js: js}
	var err error
	spec := topology.Spec{Lanes: lanes, Replicas: replicas, KeyFingerprint: code.Fingerprint(testKey)}
	// A cluster that has just lost a node may not answer at first.
	streamtest.Eventually(t, "the log is there", func() bool {
		if r.log, err = topology.Ensure(t.Context(), js, spec); errors.Is(err, topology.ErrRefused) {
			t.Fatal(err)
		}
		return err == nil
	})
	if len(r.log.Drift) > 0 {
		t.Errorf("drift: %v", r.log.Drift)
	}
	return r
}

// work runs owners and schedulers of all lanes until stop is called or the test ends.
func (r *rig) work(change func(*lane.Options)) {
	r.t.Helper()
	snapshots, err := snapstore.New(r.t.Context(), r.js, snapstore.Options{Seal: r.log.WithKey(testKey).Seal, Logger: streamtest.Logger(r.t), Pause: time.Microsecond})
	streamtest.Must(r.t, err)
	for n := range lanes {
		o := lane.Options{JetStream: r.js, Log: r.log, Lane: n, Key: testKey, Snapshots: snapshots, Logger: streamtest.Logger(r.t)}
		if change != nil {
			change(&o)
		}
		ctx, cancel := context.WithCancel(context.Background())
		w := &worker{Lane: lane.New(o), cancel: cancel}
		w.done.Go(func() { _ = w.Run(ctx) })
		w.done.Go(func() {
			_ = scheduler.New(r.js, r.log.WithKey(testKey), n, scheduler.Options{
				Snapshots: snapshots, Metrics: scheduler.NewMetrics(nil), Logger: streamtest.Logger(r.t), Clock: wall.Machine,
				Config: settings.Fixed(settings.Default()), Load: load.NewMeter(lanes), Decides: func() bool { return true },
			}).Run(ctx)
		})
		r.run = append(r.run, w)
	}
	r.t.Cleanup(r.stop)
	for n, w := range r.run {
		streamtest.Eventually(r.t, fmt.Sprintf("lane %d is taken", n), func() bool {
			if s := w.Status(); s.State == lane.StateStopped {
				r.t.Fatalf("lane %d stopped: %s", n, s.Error)
			}
			return w.Status().State == lane.StateOwner
		})
	}
}

// stop is a clean stop: snapshots are written.
func (r *rig) stop() {
	for _, w := range r.run {
		w.cancel()
		w.done.Wait()
	}
	r.run = nil
}

// expire lets the lock of a dead holder run out, as NATS does ten seconds after its last renewal; package lease shows that.
func expire(t *testing.T, js jetstream.JetStream, lock string) {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), topology.LeaseBucket)
	if err == nil {
		_, err = kv.Get(t.Context(), "hold."+lock)
	}
	if err == nil {
		err = kv.Purge(t.Context(), "hold."+lock)
	}
	streamtest.Must(t, err)
}

// campaign is a name that lies on a lane.
func campaign(lane int) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf("c%d", i); topology.LaneOf(name, lanes) == lane {
			return name
		}
	}
}

// request sends lines to a lane and returns their outcomes.
func (r *rig) request(lane int, lines ...string) []wire.Outcome {
	r.t.Helper()
	outs, err := r.try(lane, lines...)
	streamtest.Must(r.t, err)
	return outs
}

func (r *rig) try(lane int, lines ...string) ([]wire.Outcome, error) {
	nc := r.js.Conn()
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return nil, err
	}
	defer sub.Unsubscribe() //nolint:errcheck // a test's
	msg := &nats.Msg{Subject: topology.LaneCmd(lane), Data: []byte(strings.Join(lines, "\n")), Header: nats.Header{topology.HeaderReply: {sub.Subject}}}
	if _, err := r.js.PublishMsg(context.Background(), msg); err != nil {
		return nil, err
	}
	answer, err := sub.NextMsg(answerWait)
	if err != nil {
		return nil, err
	}
	var outs []wire.Outcome
	for line := range bytes.SplitSeq(bytes.TrimSuffix(answer.Data, []byte("\n")), []byte("\n")) {
		out, err := wire.ParseOutcome(line)
		if err != nil {
			return nil, err
		}
		outs = append(outs, out)
	}
	return outs, nil
}

func create(c string) string {
	return fmt.Sprintf(`{"id":"create-%s","type":"create_campaign","campaign":"%s","codes":1000000,"expires_at":"2099-01-01T00:00:00Z"}`, c, c)
}

func claim(c, customer string) string {
	return fmt.Sprintf(`{"id":"claim-%s","type":"claim","campaign":"%s","customer_id":"%s"}`, customer, c, customer)
}

// claims claims for many customers of a lane and adds who got what.
func (r *rig) claims(lane, from, to int, held map[string]string) {
	r.t.Helper()
	var lines []string
	for i := from; i < to; i++ {
		lines = append(lines, claim(campaign(lane), fmt.Sprintf("l%d-%d", lane, i)))
	}
	for _, out := range r.request(lane, lines...) {
		if out.Status != wire.StatusClaimed {
			r.t.Fatalf("claim: %+v", out)
		}
		held[out.ID] = out.Code
	}
}

// claimed is a log with so many copies, of whose lanes each has claims in so many steps of that size.
func claimed(t *testing.T, js jetstream.JetStream, replicas, steps, size int) (r *rig, held map[string]string) {
	t.Helper()
	r, held = newRig(t, js, replicas), map[string]string{}
	r.work(nil)
	for n := range lanes {
		r.request(n, create(campaign(n)))
		for i := range steps {
			r.claims(n, i*size, (i+1)*size, held)
		}
	}
	return r, held
}

// repeats sends every claim again: each gets its first answer with its code, and nothing is decided twice.
func (r *rig) repeats(held map[string]string) {
	r.t.Helper()
	var lines [lanes][]string
	for id := range held {
		for n := range lanes {
			if customer := strings.TrimPrefix(id, "claim-"); strings.HasPrefix(customer, fmt.Sprintf("l%d-", n)) {
				lines[n] = append(lines[n], claim(campaign(n), customer))
			}
		}
	}
	for n, all := range lines {
		for some := range slices.Chunk(all, 500) {
			for _, out := range r.request(n, some...) {
				if !out.Repeat || out.Code != held[out.ID] {
					r.t.Fatalf("%s had %s, now: %+v", out.ID, held[out.ID], out)
				}
			}
		}
	}
}

// events reads a lane's whole event stream, and checks that its messages follow each other and no code has two holders.
func (r *rig) events(lane int) (messages []eventlog.Message, holders map[string]string) {
	r.t.Helper()
	holders = map[string]string{}
	r.read(eventlog.Events(r.js, lane), func(m *eventlog.Message) {
		if n := len(messages); n > 0 && !messages[n-1].Follows(m) {
			r.t.Fatalf("lane %d: message %d does not follow %d", lane, m.Sequence, messages[n-1].Sequence)
		}
		messages = append(messages, *m)
		for _, line := range eventlog.Lines(m.Payload) {
			var ev wire.Event
			streamtest.Must(r.t, wire.ParseEvent(line, &ev))
			if ev.Type == wire.CouponClaimed {
				if other := holders[ev.Code]; other != "" {
					r.t.Fatalf("code %s has two holders: %s and %s", ev.Code, other, ev.CustomerID)
				}
				holders[ev.Code] = ev.CustomerID
			}
		}
	})
	return messages, holders
}

func (r *rig) read(stream eventlog.Stream, each func(*eventlog.Message)) {
	r.t.Helper()
	reader, err := stream.Open(r.t.Context(), r.log.UUID, eventlog.Position{Log: r.log.UUID}, eventlog.ReaderOptions{Logger: streamtest.Logger(r.t)})
	streamtest.Must(r.t, err)
	defer reader.Close()
	err = reader.CatchUp(r.t.Context(), func(batch []eventlog.Message) error {
		for i := range batch {
			each(&batch[i])
		}
		return nil
	})
	streamtest.Must(r.t, err)
}

// take takes a backup.
func take(t *testing.T, js jetstream.JetStream) (dir string, m *backup.Manifest) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "backup")
	m, err := backup.Create(t.Context(), js, dir, backup.CreateOptions{Key: testKey, Version: "test", Logger: streamtest.Logger(t)})
	streamtest.Must(t, err)
	return dir, m
}

func open(t *testing.T, dir string) *backup.Backup {
	t.Helper()
	b, err := backup.Open(t.Context(), dir, &testKey, nil)
	streamtest.Must(t, err)
	return b
}

func restore(t *testing.T, dir string, js jetstream.JetStream, replicas int) {
	t.Helper()
	err := open(t, dir).Restore(t.Context(), js, backup.RestoreOptions{Replicas: replicas, Logger: streamtest.Logger(t)})
	streamtest.Must(t, err)
}
