package topology_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

var spec = topology.Spec{Lanes: 2, KeyFingerprint: "k1", CmdMaxBytes: 64 << 20}

func ensure(t *testing.T, js jetstream.JetStream, spec topology.Spec) topology.Log {
	t.Helper()
	log, err := topology.Ensure(t.Context(), js, spec)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func refused(t *testing.T, js jetstream.JetStream, spec topology.Spec, want string) {
	t.Helper()
	_, err := topology.Ensure(t.Context(), js, spec)
	if !errors.Is(err, topology.ErrRefused) || !strings.Contains(err.Error(), want) {
		t.Errorf("want a refusal that contains %q, got: %v", want, err)
	}
}

// alter changes a stream as another program does.
func alter(t *testing.T, js jetstream.JetStream, name string, change func(*jetstream.StreamConfig)) {
	t.Helper()
	stream, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	change(&cfg)
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

func TestEnsureCreatesOnceAndFindsAgain(t *testing.T) {
	s := streamtest.Start(t)
	js := s.JetStream(t)
	if _, found, err := topology.Inspect(t.Context(), js); err != nil || found {
		t.Fatalf("an empty server has a log: %v %v", found, err)
	}
	refused(t, js, topology.Spec{}, "no code key")

	made := ensure(t, js, spec)
	if made.UUID == "" || made.Lanes != 2 || made.KeyFingerprint != "k1" || made.Format != topology.Format || len(made.Drift) != 0 {
		t.Errorf("made %+v", made)
	}
	s.Restart(t)
	again := ensure(t, js, topology.Spec{CmdMaxBytes: spec.CmdMaxBytes}) // the log's own lanes, no key
	if again.UUID != made.UUID || again.Lanes != 2 || !again.Created.Equal(made.Created) || len(again.Drift) != 0 {
		t.Errorf("found %+v, made %+v", again, made)
	}
	seen, found, err := topology.Inspect(t.Context(), js)
	if err != nil || !found || seen.UUID != made.UUID || seen.KeyFingerprint != "k1" {
		t.Errorf("Inspect: %+v %v %v", seen, found, err)
	}
}

// Every stream holds what the log format promises about deletion, order and limits.
func TestStreamsKeepWhatTheyAreGiven(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	ensure(t, js, spec)
	ctx := t.Context()
	for _, name := range []string{topology.EvtStream(1), topology.RmdStream(1)} {
		stream, err := js.Stream(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		subject := stream.CachedInfo().Config.Subjects[0]
		if _, err := js.Publish(ctx, subject, []byte("kept")); err != nil {
			t.Fatal(err)
		}
		if err := stream.Purge(ctx); err == nil {
			t.Errorf("%s can be purged", name)
		}
		if err := stream.DeleteMsg(ctx, 1); err == nil {
			t.Errorf("%s lets messages be deleted", name)
		}
		for header, value := range map[string]string{"Nats-Rollup": "all", "Nats-TTL": "1s", "Nats-Schedule": "@every 1s"} {
			if _, err := js.PublishMsg(ctx, &nats.Msg{Subject: subject, Header: nats.Header{header: {value}}}); err == nil {
				t.Errorf("%s takes %s", name, header)
			}
		}
	}
	cmd, err := js.Stream(ctx, topology.CmdStream(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{topology.LaneCmd(1), topology.LaneCmdFor(1, "c"), topology.LaneAdminFor(1, "c"), topology.LaneDue(1)} {
		if _, err := js.Publish(ctx, subject, make([]byte, 900<<10)); err != nil { // over the contract's limit: it gets an answer
			t.Errorf("%s: %v", subject, err)
		}
	}
	if err := cmd.DeleteMsg(ctx, 2); err == nil {
		t.Error("commands can be deleted one by one")
	}
	if err := cmd.Purge(ctx, jetstream.WithPurgeSequence(3)); err != nil {
		t.Errorf("covered commands can not be purged: %v", err)
	}
	for i := 0; ; i++ {
		_, err := js.Publish(ctx, topology.LaneCmd(1), make([]byte, 900<<10))
		var api *jetstream.APIError
		if errors.As(err, &api) && api.ErrorCode == 10077 && api.Description == "maximum bytes exceeded" { // as streams/command reads it
			break
		}
		if err != nil || i > 100 {
			t.Fatalf("a full command stream answers %v after %d", err, i)
		}
	}
	if info, err := cmd.Info(ctx); err != nil || info.State.FirstSeq != 3 {
		t.Errorf("a full command stream dropped what it held: %+v %v", info.State, err)
	}
}

func TestEnsureRefusesAnotherLog(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	log := ensure(t, js, spec)

	other := spec
	other.Lanes = 3
	refused(t, js, other, "--lanes 2")
	other = spec
	other.KeyFingerprint = "k2"
	refused(t, js, other, "SCRIP_CODE_KEY")
	refused(t, js, topology.Spec{Lanes: -1}, "lanes is -1")

	// Without the bucket the streams have the identity.
	if err := js.DeleteKeyValue(t.Context(), topology.StateBucket); err != nil {
		t.Fatal(err)
	}
	refused(t, js, other, "SCRIP_CODE_KEY")
	if seen, found, err := topology.Inspect(t.Context(), js); err != nil || !found || seen.UUID != log.UUID {
		t.Errorf("Inspect without the bucket: %+v %v %v", seen, found, err)
	}
	if again := ensure(t, js, spec); again.UUID != log.UUID {
		t.Errorf("log %s became %s", log.UUID, again.UUID)
	}

	alter(t, js, topology.EvtStream(1), func(c *jetstream.StreamConfig) { c.Metadata["scrip_log"] = "another" })
	refused(t, js, spec, "belongs to log another")
	alter(t, js, topology.EvtStream(1), func(c *jetstream.StreamConfig) { c.Metadata["scrip_format"] = "3" })
	refused(t, js, spec, "newer scrip")
	alter(t, js, topology.EvtStream(1), func(c *jetstream.StreamConfig) { c.Metadata = nil })
	refused(t, js, spec, "no log identity")
}

func TestEnsureRefusesALostStream(t *testing.T) {
	for _, name := range []string{topology.CmdStream(1), topology.EvtStream(0), topology.RmdStream(1)} {
		t.Run(name, func(t *testing.T) {
			js := streamtest.Start(t).JetStream(t)
			ensure(t, js, spec)
			if err := js.DeleteStream(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			refused(t, js, spec, name)
			if err := js.DeleteKeyValue(t.Context(), topology.StateBucket); err != nil {
				t.Fatal(err)
			}
			refused(t, js, spec, name) // known to be complete although the bucket is gone
			if _, err := js.Stream(t.Context(), name); !errors.Is(err, jetstream.ErrStreamNotFound) {
				t.Errorf("the lost stream was created again: %v", err)
			}
		})
	}
}

// A creator that died after any number of streams leaves a log that the next start completes, under the same UUID.
func TestEnsureCompletesAnInterruptedCreation(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: topology.StateBucket})
	if err != nil {
		t.Fatal(err)
	}
	const dead = `{"log":"u-1","lanes":2,"key":"k1","format":1,"created":"2026-01-02T03:04:05Z","complete":false}`
	if _, err := kv.Create(t.Context(), "log", []byte(dead)); err != nil {
		t.Fatal(err)
	}
	if log := ensure(t, js, spec); log.UUID != "u-1" {
		t.Errorf("log %s, want u-1", log.UUID)
	}
	if err := js.DeleteStream(t.Context(), topology.EvtStream(1)); err != nil {
		t.Fatal(err)
	}
	refused(t, js, spec, "has lost SCRIP_EVT_1") // complete from now on
}

func TestEnsureRemakesWhatHoldsNothing(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	log := ensure(t, js, spec)
	if err := errors.Join(js.DeleteKeyValue(t.Context(), topology.LeaseBucket), js.DeleteObjectStore(t.Context(), topology.SnapBucket)); err != nil {
		t.Fatal(err)
	}
	if again := ensure(t, js, spec); again.UUID != log.UUID || len(again.Drift) != 0 {
		t.Errorf("%+v", again)
	}
	if _, err := js.KeyValue(t.Context(), topology.LeaseBucket); err != nil {
		t.Error(err)
	}
	if _, err := js.ObjectStore(t.Context(), topology.SnapBucket); err != nil {
		t.Error(err)
	}
}

func TestDriftIsReportedNotRepaired(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	ensure(t, js, spec)
	alter(t, js, topology.CmdStream(0), func(c *jetstream.StreamConfig) { c.MaxAge = 3600e9; c.Subjects = c.Subjects[1:] })
	alter(t, js, topology.EvtStream(1), func(c *jetstream.StreamConfig) { c.AllowDirect = true })
	alter(t, js, topology.StateStream, func(c *jetstream.StreamConfig) {
		c.RePublish = &jetstream.RePublish{Source: ">", Destination: "elsewhere.>"}
	})
	for range 2 {
		log := ensure(t, js, topology.Spec{CmdMaxBytes: 32 << 20})
		for _, want := range []string{
			"stream SCRIP_CMD_0: max_age is 1h0m0s, expected not set",
			"stream SCRIP_CMD_0: max_bytes is 67108864, expected 33554432",
			`stream SCRIP_CMD_0: subjects is ["scrip.lane.0.admin.*","scrip.lane.0.cmd.*","scrip.lane.0.due","scrip.lane.0.shop"], expected ["scrip.lane.0.admin.*","scrip.lane.0.cmd","scrip.lane.0.cmd.*","scrip.lane.0.due","scrip.lane.0.shop"]`,
			"stream SCRIP_CMD_1: max_bytes is 67108864, expected 33554432",
			"stream SCRIP_EVT_1: allow_direct is true, expected not set",
			`stream KV_SCRIP_STATE: republish is {"src":">","dest":"elsewhere.>"}, expected not set`,
		} {
			if !slices.Contains(log.Drift, want) {
				t.Errorf("not reported: %s\nin %s", want, strings.Join(log.Drift, "\n   "))
			}
		}
		if len(log.Drift) != 6 {
			t.Errorf("%d differences: %s", len(log.Drift), strings.Join(log.Drift, "\n"))
		}
	}
}

// Any number of servers starting at once agree on one log; one with another code key is refused, not mixed in.
func TestConcurrentEnsureConverges(t *testing.T) {
	t.Run("one server", func(t *testing.T) { concurrently(t, 1, streamtest.Start(t).JetStream) })
	t.Run("cluster of three", func(t *testing.T) { concurrently(t, 3, streamtest.StartCluster(t).JetStream) })
}

func concurrently(t *testing.T, replicas int, connect func(testing.TB, ...nats.Option) jetstream.JetStream) {
	const servers = 4
	logs, errs := make([]topology.Log, servers), make([]error, servers)
	var group errgroup.Group
	for i := range servers {
		js := connect(t)
		group.Go(func() error {
			mine := topology.Spec{Lanes: 2, Replicas: replicas, KeyFingerprint: fmt.Sprint("k", i/2), CmdMaxBytes: 1 << 20}
			logs[i], errs[i] = topology.Ensure(context.Background(), js, mine)
			return nil
		})
	}
	_ = group.Wait()
	uuids, refusals := map[string]int{}, 0
	for i, err := range errs {
		switch {
		case err == nil:
			uuids[logs[i].UUID]++
			if len(logs[i].Drift) != 0 {
				t.Errorf("drift: %v", logs[i].Drift)
			}
		case errors.Is(err, topology.ErrRefused):
			refusals++
		default:
			t.Errorf("server %d: %v", i, err)
		}
	}
	if len(uuids) != 1 || refusals != servers/2 {
		t.Errorf("logs %v, %d refused; want one log, and %d with the other key refused", uuids, refusals, servers/2)
	}
}

// A log that a restore has not finished, or did not come to finish, is refused whole as it may look.
func TestAnUnfinishedRestoreIsRefused(t *testing.T) {
	js := streamtest.Start(t).JetStream(t)
	spec := topology.Spec{KeyFingerprint: "k", CmdMaxBytes: 1 << 20}
	if log := ensure(t, js, spec); log.Lanes != topology.DefaultLanes {
		t.Errorf("a new log has %d lanes", log.Lanes)
	}
	mark := func(id string) {
		alter(t, js, topology.StateStream, func(c *jetstream.StreamConfig) { c.Metadata = map[string]string{topology.MetaRestoring: id} })
	}
	mark("some restore")
	refused(t, js, spec, "scrip restore")
	if _, _, err := topology.Inspect(t.Context(), js); !errors.Is(err, topology.ErrRefused) {
		t.Errorf("Inspect: %v", err)
	}
	mark("")
	ensure(t, js, spec)
}
