package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/check"
	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/domain/oracle"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const shardLanes = 6

// fleet is some servers that share lanes, a load on every lane, and its answers.
type fleet struct {
	t      *testing.T
	js     jetstream.JetStream
	client *client.Client
	steady *e2e.Server // for scrip status; owns no lane
	sale   []string
	opens  wire.Instant // the campaigns to be reminded of
	ledger *e2e.Ledger

	mu       sync.Mutex
	reminded []subscription // that were answered as set
	probes   int
}

type subscription struct{ campaign, customer string }

// TestLanesMoveUnderLoad: of three servers one is killed -9, stopped in its tracks (SIGSTOP) or leaves, and comes back, while
// customers claim and reminders become due on all lanes. Each time the lanes spread over the running servers, and scrip
// status shows it; every answered claim is in the log once, every due reminder is published once.
func TestLanesMoveUnderLoad(t *testing.T) {
	t.Parallel()
	r := newRuns(t, 5)
	srv := streamtest.Start(t, streamtest.SyncAlways)
	db := projtest.URL(t)
	start := func(roles string) *e2e.Server {
		s := e2e.NewMember(t, "--nats", srv.ClientURL(), "--postgres", db, "--lanes", fmt.Sprint(shardLanes), "--roles", roles)
		s.Begin()
		return s
	}
	nc := srv.Conn(t)
	f := &fleet{t: t, js: srv.JetStream(t), client: client.New(nc, client.Options{}), ledger: e2e.NewLedger()}
	t.Cleanup(f.client.Close)
	var servers []*e2e.Server
	for range 3 {
		servers = append(servers, start("lanes,scheduler"))
	}
	for _, s := range servers {
		s.Ready()
	}
	f.steady = start("projector,api") // not before there is a log
	f.steady.Ready()
	f.spread("three servers", 3, time.Now())
	f.campaigns()

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var workers sync.WaitGroup
	for n := range 8 {
		workers.Go(func() { load(ctx, f.client, f.sale, f.ledger, n, r.stream(n), 10*time.Millisecond) })
	}
	workers.Go(func() { f.remind(ctx, r.stream(100)) })

	change := func(what string, left int, do func()) {
		t.Helper()
		<-f.ledger.After(100)
		began := time.Now()
		do()
		f.spread(what, left, began)
	}
	kinds := []struct {
		leaves, back string
		leave, come  func(*e2e.Server)
	}{
		{"a server is killed", "the killed one is back", func(s *e2e.Server) { s.Kill() }, (*e2e.Server).Up},
		{"a server is stopped in its tracks", "it wakes up", func(s *e2e.Server) { s.Signal(syscall.SIGSTOP) }, func(s *e2e.Server) { s.Signal(syscall.SIGCONT) }},
		{"a server leaves", "it is back", func(s *e2e.Server) {
			if code := s.Stop(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		}, (*e2e.Server).Up},
	}
	for r.next() {
		kind, s := kinds[(r.n-1)%len(kinds)], servers[r.IntN(len(servers))]
		change(kind.leaves, 2, func() { kind.leave(s) })
		change(kind.back, 3, func() { kind.come(s) })
	}
	<-f.ledger.After(100)
	stop()
	workers.Wait()
	f.settle(db)
	t.Logf("soak: %d fail-overs of a server", r.n)
}

// campaigns creates a sale and a campaign to be reminded of on every lane.
func (f *fleet) campaigns() {
	f.t.Helper()
	f.opens = wire.At(time.Now().Add(time.Hour))
	opens := wire.DefaultSettings(100_000)
	opens.OpensAt = f.opens
	f.sale = onEachLane("sale")
	for _, name := range f.sale {
		if out, err := f.client.CreateCampaign(f.t.Context(), name, wire.DefaultSettings(1_000_000)); err != nil || out.Refused() {
			f.t.Fatal(out, err)
		}
	}
	for _, name := range onEachLane("soon") {
		if out, err := f.client.CreateCampaign(f.t.Context(), name, opens); err != nil || out.Refused() {
			f.t.Fatal(out, err)
		}
	}
}

// onEachLane finds names of campaigns, one for each lane in turn.
func onEachLane(prefix string) []string {
	names := make([]string, shardLanes)
	for i, found := 0, 0; found < shardLanes; i++ {
		name := fmt.Sprint(prefix, "-", i)
		if lane := topology.LaneOf(name, shardLanes); names[lane] == "" {
			names[lane] = name
			found++
		}
	}
	return names
}

// remind subscribes customers on all lanes, in tens that fall due within seconds at one instant each.
func (f *fleet) remind(ctx context.Context, rng *rand.Rand) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	names := onEachLane("soon")
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		campaign := names[rng.IntN(len(names))]
		due := time.Now().Add(time.Second + time.Duration(rng.IntN(1000))*time.Millisecond)
		before := time.Duration(f.opens-wire.At(due)) * time.Microsecond
		for j := range 10 {
			customer := fmt.Sprintf("r%d-%d", i, j)
			cmd := wire.Command{Type: wire.Remind, Campaign: campaign, CustomerID: customer, Kind: wire.KindOpens, Before: before}
			err := f.client.DoAsync(ctx, cmd, func(out wire.Outcome, err error) {
				f.mu.Lock()
				defer f.mu.Unlock()
				switch {
				case err != nil || out.Refusal == wire.TooLate || out.Refusal == wire.NotDurable: // not known, or nobody was there in time
				case out.Refusal == wire.Outdated || f.ledger.Note("reminder of "+customer, out, nil): // outdated: sent again after it had fired
					f.reminded = append(f.reminded, subscription{campaign, customer})
				}
			})
			if err != nil && ctx.Err() == nil {
				f.t.Errorf("reminder of %s: %v", customer, err)
			}
		}
	}
}

// spread waits until the lanes are spread evenly over so many servers and each lane answers, and logs how long that took.
func (f *fleet) spread(what string, servers int, began time.Time) {
	f.t.Helper()
	even := func(holders []string) bool {
		n := map[string]int{}
		for _, holder := range holders {
			n[holder]++
		}
		for _, lanes := range n {
			if lanes != shardLanes/servers {
				return false
			}
		}
		return len(n) == servers
	}
	streamtest.Eventually(f.t, what+": the lanes are spread evenly", func() bool {
		status, err := lease.Inspect(f.t.Context(), f.js, "lane", shardLanes)
		if err != nil {
			return false
		}
		var holders []string
		for _, h := range status.Holders {
			holders = append(holders, h.Server)
		}
		return even(holders)
	})
	held := time.Since(began)
	if f.sale != nil {
		var probes sync.WaitGroup
		for _, campaign := range f.sale {
			f.probes++
			customer := fmt.Sprint("probe-", f.probes)
			probes.Go(func() {
				out, err := f.client.Claim(f.t.Context(), campaign, customer)
				f.ledger.Claimed(campaign, customer, out, err)
			})
		}
		probes.Wait()
	}
	answered := time.Since(began)
	streamtest.Eventually(f.t, what+": scrip status shows it", func() bool {
		st, ready := f.status()
		return ready && even(st.holders())
	})
	f.t.Logf("%s: the lanes were spread after %s, and all answered after %s", what, held.Round(time.Millisecond), answered.Round(time.Millisecond))
}

// shownStatus has the fields of `scrip status -o json` that this test uses.
type shownStatus struct {
	Ready bool `json:"ready"`
	Lane  []struct {
		Holder string `json:"holder"`
	} `json:"lane"`
}

func (s shownStatus) holders() (list []string) {
	for _, l := range s.Lane {
		list = append(list, l.Holder)
	}
	return list
}

// status runs scrip status. ready also means that it ended with 0.
func (f *fleet) status() (st shownStatus, ready bool) {
	f.t.Helper()
	out, err := exec.CommandContext(f.t.Context(), e2e.Binary(), "status", "-o", "json", "--data", f.steady.Data).Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		f.t.Fatal(err)
	}
	if err := json.Unmarshal(out, &st); err != nil {
		f.t.Fatalf("scrip status printed %q: %v", out, err)
	}
	return st, err == nil && st.Ready && len(st.Lane) == shardLanes && !slices.Contains(st.holders(), "")
}

// settle compares the answers with the log, once all due reminders are published, and the log with the tables.
func (f *fleet) settle(db string) {
	t := f.t
	t.Helper()
	log, found, err := topology.Inspect(t.Context(), f.js)
	if err != nil || !found {
		t.Fatalf("the log: %v, %v", found, err)
	}
	fold := check.NewFold()
	streamtest.Eventually(t, "every reminder was due and is published", func() bool {
		if _, err := fold.CatchUp(t.Context(), f.js, log); err != nil {
			t.Fatal(err)
		}
		return fold.Tally().Pending == 0 && fold.Unpublished == 0 || len(fold.Violations) > 0
	})
	fold = e2e.CheckLog(t, f.js, db)
	missing := f.ledger.Settle(t, fold)
	claims, _ := f.ledger.Answers()
	f.mu.Lock()
	defer f.mu.Unlock()
	set := map[subscription]oracle.State{}
	for _, name := range onEachLane("soon") {
		for _, r := range fold.Campaigns[name].Reminders {
			set[subscription{name, r.Customer}] = r.State
		}
	}
	for _, s := range f.reminded {
		if state, there := set[s]; !there || state != oracle.Fired {
			t.Errorf("the reminder of %s in %s was answered as set; in the log it is %v (there: %v)", s.customer, s.campaign, state, there)
		}
	}
	tally := fold.Tally()
	t.Logf("%d claims and %d reminders were answered, %d answers missing; reminders: %s, %d published", len(claims), len(f.reminded), missing, tally, tally.Published)
	if missing > 0 || len(claims) == 0 || len(f.reminded) == 0 || tally.Published != tally.Fired || tally.Fired != tally.Set {
		t.Errorf("%d answers missing; %+v", missing, tally)
	}
}
