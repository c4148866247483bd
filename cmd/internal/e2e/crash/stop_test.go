package crash

import (
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestAStoppedOwnerIsReplacedAndThenHarmless: of two servers on one NATS, the one that owns the lanes is stopped in its
// tracks (SIGSTOP), the other takes over, then the first is woken. It must answer nothing and change nothing.
func TestAStoppedOwnerIsReplacedAndThenHarmless(t *testing.T) {
	t.Parallel()
	const lanes = 2
	srv := streamtest.Start(t, streamtest.SyncAlways)
	db := projtest.URL(t)
	flags := []string{"--nats", srv.ClientURL(), "--postgres", db, "--lanes", fmt.Sprint(lanes)}
	first := e2e.NewMember(t, flags...)
	first.Up()
	nc := srv.Conn(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(nc, client.Options{})
	t.Cleanup(c.Close)
	ctx := t.Context()
	var campaigns []string
	for i := range 4 {
		campaigns = append(campaigns, fmt.Sprintf("c-%d", i))
		if out, err := c.CreateCampaign(ctx, campaigns[i], wire.DefaultSettings(100_000)); err != nil || out.Refused() {
			t.Fatal(out, err)
		}
	}
	before := e2e.Writers(t, js, lanes)
	second := e2e.NewMember(t, flags...)
	second.Args = append(second.Args, "--roles", "lanes,scheduler,api")

	// Commands lie ready when the owner wakes up: it will try to decide them with its old state.
	first.Signal(syscall.SIGSTOP)
	second.Up()
	claims := map[string]string{}
	for i := range 50 {
		customer := fmt.Sprintf("while-stopped-%d", i)
		out, err := c.Claim(ctx, campaigns[i%len(campaigns)], customer)
		if err != nil || out.Refused() {
			t.Fatalf("claim %d while the first owner is stopped: %+v, %v", i, out, err)
		}
		claims[customer] = out.Code
	}
	taken := e2e.Writers(t, js, lanes)
	for lane := range lanes {
		if taken[lane] == before[lane] {
			t.Errorf("lane %d is still written by the stopped owner", lane)
		}
	}
	first.Signal(syscall.SIGCONT)
	for i := range 200 {
		customer := fmt.Sprintf("after-%d", i)
		out, err := c.Claim(ctx, campaigns[i%len(campaigns)], customer)
		if err != nil || out.Refused() {
			t.Fatalf("claim %d after the first owner woke up: %+v, %v", i, out, err)
		}
		claims[customer] = out.Code
	}
	for customer, code := range claims {
		i := 0
		fmt.Sscanf(customer[strings.LastIndexByte(customer, '-')+1:], "%d", &i)
		if out, err := c.Claim(ctx, campaigns[i%len(campaigns)], customer); err != nil || out.Code != code {
			t.Fatalf("%s was answered %s, now %+v, %v", customer, code, out, err)
		}
	}
	// The old nonces wrote nothing behind the new ones.
	for lane := range lanes {
		seen := false
		bounds, err := eventlog.Events(js, lane).Bounds(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for seq := bounds.First; seq <= bounds.Last; seq++ {
			raw, err := eventlog.Events(js, lane).Get(ctx, seq)
			if err != nil {
				t.Fatal(err)
			}
			switch owner := raw.Header.Get(topology.HeaderOwner); {
			case owner == taken[lane]:
				seen = true
			case owner == before[lane] && seen:
				t.Fatalf("lane %d: message %d was written by the zombie", lane, seq)
			}
		}
	}
	fold := e2e.CheckLog(t, js, db)
	if n := len(claims); fold.ByStatus()[wire.StatusClaimed] != n {
		t.Errorf("%d claims were answered, the log has %v", n, fold.ByStatus())
	}
}

// TestPostgreSQLStoppedAndStarted: claims go on while PostgreSQL is down, and the tables catch up by themselves.
func TestPostgreSQLStoppedAndStarted(t *testing.T) {
	cluster := projtest.Cluster(t)
	s := e2e.NewServer(t, "--nats-listen", streamtest.Address(t), "--postgres", cluster.URL())
	s.Up()
	c := s.Client()
	ctx := t.Context()
	if out, err := c.CreateCampaign(ctx, "c", wire.DefaultSettings(10_000)); err != nil || out.Refused() {
		t.Fatal(out, err)
	}
	claim := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if out, err := c.Claim(ctx, "c", fmt.Sprint("customer-", i)); err != nil || out.Refused() {
				t.Fatalf("claim %d: %+v, %v", i, out, err)
			}
		}
	}
	claim(0, 20)
	if err := cluster.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	claim(20, 60)
	url, err := cluster.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := mustHost(t, url), mustHost(t, s.Desc.PostgresURL); a != b {
		t.Fatalf("PostgreSQL came back on %s, was on %s", a, b)
	}
	claim(60, 80)
	if fold := s.CheckLog(); fold.ByStatus()[wire.StatusClaimed] != 80 {
		t.Errorf("the log has %v, want 80 claimed", fold.ByStatus())
	}
	if n := strings.Count(s.Output(), "waits"); n > 3 {
		t.Errorf("the projector logged %d times that it waits, want once an outage", n)
	}
}

func mustHost(t *testing.T, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// TestALogThatLostItsTailUnderACheckpoint: the log's directory is put back to an older copy while the tables are ahead
// of it. The projector must say so and leave the tables alone; claims go on.
func TestALogThatLostItsTailUnderACheckpoint(t *testing.T) {
	db := projtest.URL(t)
	srv := streamtest.Start(t)
	s := e2e.NewMember(t, "--nats", srv.ClientURL(), "--postgres", db, "--lanes", "1")
	s.Up()
	ctx := t.Context()
	ask := func(from, to int) {
		t.Helper()
		c, err := client.Connect(srv.ClientURL(), nats.ReconnectWait(20*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if out, err := c.CreateCampaign(ctx, "c", wire.DefaultSettings(10_000)); err != nil || out.Refused() {
			t.Fatal(out, err)
		}
		for i := from; i < to; i++ {
			if out, err := c.Claim(ctx, "c", fmt.Sprint("customer-", i)); err != nil || out.Refused() {
				t.Fatalf("claim %d: %+v, %v", i, out, err)
			}
		}
	}
	ask(0, 50)
	e2e.CheckLog(t, srv.JetStream(t), db)
	if code := s.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	older := srv.CopyStore(t)
	s.Up()
	ask(50, 100)
	e2e.CheckLog(t, srv.JetStream(t), db) // the tables have seen the tail
	if code := s.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	srv.RestoreStore(t, older)
	s.Up()
	s.Logs("rebuild", "ends before")
	ask(100, 150)
}
