package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/check"
	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/pgd"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/settings"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m, nil)) }

// patience is how long anything may take before the world counts as stuck.
const patience = 2 * time.Minute

// newServer starts a server that shares its log with others.
func newServer(t *testing.T, args ...string) *e2e.Server {
	t.Helper()
	s := e2e.NewMember(t, args...)
	s.Up()
	return s
}

// fault is one kind of trouble. It ends it, too.
type fault struct {
	name string
	do   func()
}

// world is what the load runs on.
type world struct {
	t      *testing.T
	rng    *rand.Rand
	nc     *nats.Conn
	js     jetstream.JetStream
	client *client.Client
	db     *pgd.Cluster // that can be stopped; nil in a short run
	url    string       // of PostgreSQL
	log    topology.Log
	ledger *ledger
	crowd  *crowd
	faults []fault
	spells []spell
	seed   uint64
	until  time.Time
}

// newWorld makes a world with a PostgreSQL: of its own, where that is to be stopped.
func newWorld(t *testing.T, rng *rand.Rand) *world {
	t.Helper()
	w := &world{t: t, rng: rng}
	if *runFor == 0 {
		w.url = projtest.URL(t)
		return w
	}
	w.db = projtest.Cluster(t)
	w.url = w.db.URL()
	return w
}

// connect is called when the servers are up.
func (w *world) connect(url string) {
	w.t.Helper()
	var err error
	if w.nc, err = nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond)); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(w.nc.Close)
	if w.js, err = jetstream.New(w.nc); err != nil {
		w.t.Fatal(err)
	}
	found := false
	if w.log, found, err = topology.Inspect(w.t.Context(), w.js); err != nil || !found {
		w.t.Fatalf("the log: %v, %v", found, err)
	}
	w.client = client.New(w.nc, client.Options{})
	w.t.Cleanup(w.client.Close)
	w.ledger = newLedger()
}

// run loads the world, lets each fault happen once in the order of chance, then any until time is up, and looks at what
// is left.
func (w *world) run(seed uint64, until time.Time) {
	t := w.t
	w.seed, w.until = seed, until
	t.Helper()
	var campaigns []string
	for i := range 8 {
		name := fmt.Sprint("sale-", i)
		settings := wire.DefaultSettings(10_000_000)
		settings.ValidFor = lifetime
		if out, err := w.client.CreateCampaign(t.Context(), name, settings); err != nil || out.Refused() {
			t.Fatal(out, err)
		}
		campaigns = append(campaigns, name)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var workers sync.WaitGroup
	for n := range 24 {
		rng := rand.New(rand.NewPCG(seed, uint64(n)+10))
		workers.Go(func() { w.ledger.work(ctx, w.client, campaigns, n, rng) })
	}
	w.crowd = newCrowd(w, *reminders, seed)
	w.crowd.gather()
	w.calm(200)
	workers.Go(func() { w.crowd.trickle(ctx) })
	workers.Go(func() { w.turnKnobs(ctx) })
	for _, i := range w.rng.Perm(len(w.faults)) {
		w.strike(i)
	}
	for time.Now().Before(until) || !w.crowd.full() {
		w.strike(w.rng.IntN(len(w.faults)))
	}
	w.crowd.finish()
	w.calm(200)
	stop()
	workers.Wait()
	for _, campaign := range campaigns {
		if out, err := w.client.Claim(t.Context(), campaign, "the-last"); err != nil || out.Refused() {
			t.Errorf("%s after all faults: %+v, %v", campaign, out, err)
		}
	}
	fold := w.check()
	w.ledger.settle(t, fold)
	w.crowd.settle(t, fold)
	w.fellDue(fold)
	t.Logf("soak: %d faults", len(w.spells))
}

// turnKnobs changes, twice a second, how reminders are held back for a person.
func (w *world) turnKnobs(ctx context.Context) {
	store, err := settings.Open(ctx, w.js, settings.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.t.Error(err)
		return
	}
	rng := rand.New(rand.NewPCG(w.seed, 99))
	for natsx.Pause(ctx, 500*time.Millisecond) == nil {
		merge := []string{`"0s"`, `"1s"`, `"3s"`}[rng.IntN(3)]
		_, _ = store.Set(ctx, settings.Object{
			"push.merge": json.RawMessage(merge), "push.shards": json.RawMessage(fmt.Sprint(1 + rng.IntN(8))), "push.batch": json.RawMessage(fmt.Sprint(1 + rng.IntN(2_000))),
		}, nil, access.Author{Principal: access.Principal{Name: "chaos", Role: access.Operator}}) // one that a fault prevents is followed by another
	}
}

// calm waits for n answers: the world goes on.
func (w *world) calm(n int) {
	w.t.Helper()
	select {
	case <-w.ledger.After(n):
	case <-time.After(patience):
		w.t.Fatal("nothing is answered any more")
	}
}

// spell is one fault's time: from when its burst of reminders may fall due to when answers come again.
type spell struct {
	fault    string
	from, to time.Time
}

// most is how many answers there are at most between two faults.
func most() int {
	if *runFor == 0 {
		return 200
	}
	return 1500
}

// strike lets a fault happen and waits until answers come again. Before each kind's first time a burst of reminders is
// moved so that it falls due then.
func (w *world) strike(i int) {
	w.t.Helper()
	f := w.faults[i]
	over := w.crowd.arm(i)
	started := time.Now()
	f.do()
	until(over)
	w.calm(1 + w.rng.IntN(most()))
	now := time.Now()
	w.spells = append(w.spells, spell{f.name, started.Add(-burstSpread), now.Add(burstSpread)})
	w.t.Logf("%s: %s", f.name, now.Sub(started).Round(time.Millisecond))
}

// fellDue checks that work became due during each fault.
func (w *world) fellDue(fold *check.Fold) {
	w.t.Helper()
	for i, f := range w.faults {
		during := func(at time.Time) bool {
			for _, s := range w.spells {
				if s.fault == f.name && !at.Before(s.from) && at.Before(s.to) {
					return true
				}
			}
			return false
		}
		var due, published, expired uint64
		for _, firing := range fold.Firings {
			if during(firing.Due.Time()) {
				due += firing.Fired
			}
		}
		for _, message := range fold.Published {
			if during(message.At) {
				published += uint64(message.Customers)
			}
		}
		for _, expiry := range fold.Expiries {
			if during(expiry.Through.Time()) || during(expiry.At.Time()) {
				expired += expiry.Count
			}
		}
		w.t.Logf("%s: %d reminders became due and fired, %d were published, %d coupons expired", f.name, due, published, expired)
		if due == 0 || published == 0 || expired == 0 && withExpiries(i) {
			w.t.Errorf("no reminders became due and were published, or no coupons expired, during: %s", f.name)
		}
	}
}

// check folds the log and compares the tables with it, when all due reminders are published and the log has stopped growing.
func (w *world) check() *check.Fold {
	t := w.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience+time.Duration(*reminders)*time.Millisecond/2)
	defer cancel()
	db, err := pgx.Connect(ctx, w.url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.Background()) //nolint:errcheck // the test is over
	fold := check.NewFold()
	catchUp := func() []uint64 {
		ends, err := fold.CatchUp(ctx, w.js, w.log)
		if err != nil {
			t.Fatal(err)
		}
		return ends
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var differences []string
	for settled := false; !settled && len(fold.Violations) == 0; {
		ends := catchUp()
		now := wire.At(time.Now())
		if late := fold.Overdue(now); late > 0 || fold.Unpublished > 0 || len(fold.Held) > 0 || fold.Overdue(now.Add(trickleReach())) > 0 {
			select {
			case <-ctx.Done():
				t.Fatalf("%d reminders are due and did not fire, %d fired and are not published, %d are held back", late, fold.Unpublished, len(fold.Held))
			case <-tick.C:
			}
			continue
		}
		// Time goes on, and with it reminders: the tables are compared with a log that did not move while they were read.
		if err := check.CaughtUp(ctx, db, ends); err != nil {
			t.Fatal(err)
		}
		if differences, err = fold.Tables(ctx, db); err != nil {
			t.Fatal(err)
		}
		settled = slices.Equal(ends, catchUp())
	}
	for _, v := range fold.Violations[:min(len(fold.Violations), 10)] {
		t.Errorf("promise broken: %s", v)
	}
	for _, d := range differences {
		t.Errorf("the tables differ from the log: %s", d)
	}
	tally := fold.Tally()
	t.Logf("%d events; reminders: %s, %d published; of those held back %+v", fold.Events, tally, tally.Published, fold.LetOut)
	if fold.LetOut == (check.LetOut{}) {
		t.Error("no reminder was held back")
	}
	if tally.Published != tally.Fired || tally.Set != tally.Fired+tally.Cancelled+tally.Dropped+tally.Pending {
		t.Errorf("the reminders do not add up: %+v", tally)
	}
	return fold
}

// postgres stops PostgreSQL for a while; claims go on.
func (w *world) postgres() fault {
	return fault{"PostgreSQL stopped and started", func() {
		ctx := w.t.Context()
		if err := w.db.Stop(ctx); err != nil {
			w.t.Fatal(err)
		}
		w.calm(300)
		if _, err := w.db.Start(ctx); err != nil {
			w.t.Fatal(err)
		}
	}}
}

// full gives the event streams no more room, until writes were refused, and then room again.
func (w *world) full() fault {
	limit := func(lane int, bytes int64) {
		streamtest.Eventually(w.t, "the stream's limit is changed", func() bool {
			ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
			defer cancel()
			stream, err := w.js.Stream(ctx, topology.EvtStream(lane))
			if err != nil {
				return false
			}
			config := stream.CachedInfo().Config
			config.MaxBytes = bytes
			_, err = w.js.UpdateStream(ctx, config)
			return err == nil
		})
	}
	return fault{"event store full", func() {
		lane := w.rng.IntN(w.log.Lanes)
		bounds, err := eventlog.Events(w.js, lane).Bounds(w.t.Context())
		if err != nil {
			w.t.Fatal(err)
		}
		limit(lane, int64(bounds.Bytes)+64)
		// Nothing more lands, and yet the owner tries.
		probe := &nats.Msg{Subject: topology.Evt(lane), Header: nats.Header{jetstream.ExpectedLastSeqHeader: {"1"}}, Data: make([]byte, 512)}
		streamtest.Eventually(w.t, "the stream refuses a write", func() bool {
			end, err := eventlog.Events(w.js, lane).Bounds(w.t.Context())
			if err != nil {
				return false
			}
			probe.Header.Set(jetstream.ExpectedLastSeqHeader, fmt.Sprint(end.Last))
			msg, err := w.nc.RequestMsg(probe, 5*time.Second)
			return err == nil && bytes.Contains(msg.Data, []byte(`"err_code":10077`))
		})
		limit(lane, -1)
	}}
}

// id is the name of a server in leases.
func id(t *testing.T, s *e2e.Server) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(s.Data, "server.id"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(raw))
}
