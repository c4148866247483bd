package crash

import (
	"fmt"
	"syscall"
	"testing"

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
	js := srv.JetStream(t)
	c := client.New(srv.Conn(t), client.Options{})
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

	// There are commands when the owner wakes up: it will try to decide them with its old state.
	first.Signal(syscall.SIGSTOP)
	second.Up()
	l := e2e.NewLedger()
	claim := func(from, to int) {
		for i := from; i < to; i++ {
			campaign, customer := campaigns[i%len(campaigns)], fmt.Sprint("customer-", i)
			out, err := c.Claim(ctx, campaign, customer)
			l.Claimed(campaign, customer, out, err)
		}
	}
	claim(0, 50) // while the first owner is stopped
	taken := e2e.Writers(t, js, lanes)
	for lane := range lanes {
		if taken[lane] == before[lane] {
			t.Errorf("lane %d is still written by the stopped owner", lane)
		}
	}
	first.Signal(syscall.SIGCONT)
	claim(50, 250) // after it woke up
	claim(0, 250)  // the same codes again
	// The old nonces wrote nothing after the new ones.
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
	if missing := l.Settle(t, fold); missing > 0 || fold.ByStatus()[wire.StatusClaimed] != 250 {
		t.Errorf("250 claims were answered, %d are missing, the log has %v", missing, fold.ByStatus())
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
	if _, err := cluster.Start(ctx); err != nil {
		t.Fatal(err)
	}
	claim(60, 80)
	if fold := s.CheckLog(); fold.ByStatus()[wire.StatusClaimed] != 80 {
		t.Errorf("the log has %v, want 80 claimed", fold.ByStatus())
	}
}
