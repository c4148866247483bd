package readers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

var (
	lasting  = flag.Duration("readers.for", 0, "how long TestRebuildsBesideReaders rebuilds; 0 = not at all")
	rebuilds = flag.Int("readers.rebuilds", 20, "how many rebuilds there are, if there is time")
	seeded   = flag.Uint64("readers.seed", 0, "of the random choices; 0 = a new one")
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m, nil)) }

const (
	// In the time without rebuilds a snapshot waits until segments are merged, after eight bursts, which takes mergedIn at
	// most, and oldFor longer. Then these segments are dropped, each of them droppedIn after the one before at the latest:
	// the session that idles is in the way for 10 s. calm is what all usually takes.
	mergedIn, oldFor, droppedIn, calm = 150 * time.Second, 20 * time.Second, 45 * time.Second, 190 * time.Second
	// calmFrom is from which length on a run has that time.
	calmFrom = 5 * time.Minute
	// rebuildMost is far longer than a rebuild of so few coupons takes.
	rebuildMost = 3 * time.Minute
	// rebuilding is the kind of a rebuild's lines.
	rebuilding = "a rebuild"
	// analysts have five sessions each. One more than needed, as PostgreSQL takes a moment to end one.
	analysts = 3
)

// TestRebuildsBesideReaders rebuilds beside readers. None of the rebuilds fails, no read is ended, every count is what
// was committed.
func TestRebuildsBesideReaders(t *testing.T) {
	if *lasting == 0 {
		t.Skip("it takes minutes: make soak PARTS=readers")
	}
	seed := *seeded
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	began := time.Now()
	s := start(t)
	l := newLoad(t, s, seed)
	r := newReport()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	l.run(ctx)
	if !l.grown(ctx) {
		t.Fatal("the tables have no coupon")
	}
	readers := &readers{t: t, site: s, load: l, report: r, seed: seed}
	readers.run(ctx)

	until, rng := began.Add(*lasting), rand.New(rand.NewPCG(seed, 0))
	if *lasting >= calmFrom {
		until = until.Add(-calm)
	}
	made := 0
	for longest := time.Duration(0); made < *rebuilds && (made == 0 || time.Now().Add(longest).Before(until)); {
		made++
		at := time.Now()
		r.doing(fmt.Sprint("rebuild ", made))
		r.done(rebuilding, at, s.rebuild(ctx))
		r.doing(calmly)
		longest = max(longest, time.Since(at))
		_ = sleep(ctx, time.Duration(rng.IntN(2000))*time.Millisecond)
	}
	t.Logf("%d rebuilds of %d, the longest in %s", made, *rebuilds, r.longest())
	readers.calm.Store(true)
	old := 0
	if *lasting >= calmFrom {
		readers.old(ctx)
		old++
		readers.dropped(ctx)
	} else {
		t.Logf("no old snapshot, and no merge: that takes a run of %s", calmFrom)
	}
	segments := s.segments(t)
	stop()
	readers.all.Wait()
	l.all.Wait()
	r.print(t)
	t.Logf("the tables: %s", segments)
	t.Logf("soak: %d rebuilds", made)
	t.Logf("soak: %d old snapshots", old)
	t.Logf("soak: %d reads", r.reads())
	t.Logf("soak: %d sessions ended while idle", readers.idled.Load())
	if *lasting > 2*idleFor && readers.idled.Load() == 0 {
		t.Error("the session that idles was never ended")
	}
	l.ledger.Settle(t, s.server.CheckLog())
}

// site is a server and how it is reached.
type site struct {
	server   *e2e.Server
	http     string
	user     *url.Userinfo // of the data directory
	support  string        // a key that sees no codes
	postgres []string      // of each analyst
}

func start(t *testing.T) *site {
	t.Helper()
	s := &site{server: e2e.NewServer(t, "--nats-listen", streamtest.Address(t))}
	s.server.Up()
	u, err := url.Parse(s.server.Desc.HTTPURL)
	streamtest.Must(t, err)
	s.user, u.User = u.User, nil
	s.http = u.String()
	var made struct {
		Secret      string
		PostgresURL string `json:"postgres_url"`
	}
	s.key(t, `{"name":"sue","role":"support"}`, &made)
	s.support = made.Secret
	for i := range analysts {
		s.key(t, fmt.Sprintf(`{"name":"ada-%d","role":"analyst","codes":true,"customers":true}`, i), &made)
		u, err := url.Parse(made.PostgresURL)
		if err != nil || made.PostgresURL == "" {
			t.Fatalf("the analyst reads at %q: %v", made.PostgresURL, err)
		}
		u.User = url.UserPassword(u.User.Username(), made.Secret)
		s.postgres = append(s.postgres, u.String())
	}
	for _, analyst := range s.postgres { // a server makes roles of new keys twice a second
		streamtest.Eventually(t, "the analyst logs in", func() bool {
			db, err := pgx.Connect(t.Context(), analyst)
			if err != nil {
				return false
			}
			_, err = db.Exec(t.Context(), "SELECT count(*) FROM scrip.coupon")
			return errors.Join(err, db.Close(t.Context())) == nil
		})
	}
	return s
}

// key makes a key.
func (s *site) key(t *testing.T, body string, into any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.http+"/v1/keys", strings.NewReader(body))
	streamtest.Must(t, err)
	s.own(req)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	streamtest.Must(t, err)
	defer resp.Body.Close() //nolint:errcheck // read
	text, err := io.ReadAll(resp.Body)
	streamtest.Must(t, err)
	if resp.StatusCode >= 300 {
		t.Fatalf("POST /v1/keys: %d %s", resp.StatusCode, text)
	}
	streamtest.Must(t, json.Unmarshal(text, into))
}

// own gives a request the credentials of the data directory.
func (s *site) own(req *http.Request) {
	password, _ := s.user.Password()
	req.SetBasicAuth(s.user.Username(), password)
}

// rebuild runs scrip rebuild. Its error is what the command printed last.
func (s *site) rebuild(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, rebuildMost)
	defer cancel()
	cmd := exec.CommandContext(limited, e2e.Binary(), "rebuild", "--data", s.server.Data, "-o", "json")
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		if limited.Err() != nil {
			return fmt.Errorf("not over after %s", rebuildMost)
		}
		text := lastLine(said.String())
		if !strings.HasPrefix(text, "scrip: ") { // a refusal is on the standard output
			text = lastLine(out.String())
		}
		return fmt.Errorf("%w: %s", err, text)
	}
	var result struct {
		Tables []struct {
			Table  string
			Equal  bool
			Before int64 `json:"rows_before"`
			After  int64 `json:"rows"`
		}
	}
	if err := json.Unmarshal(out.Bytes(), &result); err != nil {
		return fmt.Errorf("reading the result: %w: %s", err, out.String())
	}
	for _, table := range result.Tables {
		if !table.Equal {
			return fmt.Errorf("table %s differs: %d rows before, %d now", table.Table, table.Before, table.After)
		}
	}
	return nil
}

// segments describes the segments of the tables in use.
func (s *site) segments(t *testing.T) (text string) {
	t.Helper()
	streamtest.Must(t, s.ask(t.Context(), "concat_ws(' ', count(*) FILTER (WHERE merged_at IS NULL), 'segments,', "+
		mergedSQL+", 'merged and not dropped,', 1 - min(segment) - count(*), 'dropped')", &text))
	return text
}

// mergedSQL are those whose rows are in another one.
const mergedSQL = "count(*) FILTER (WHERE merged_at IS NOT NULL)"

// ask reads an expression from the segments of the tables in use.
func (s *site) ask(ctx context.Context, expression string, into any) error {
	db, err := pgx.Connect(ctx, s.server.Desc.PostgresURL)
	if err != nil {
		return err
	}
	defer db.Close(context.WithoutCancel(ctx)) //nolint:errcheck
	var live string
	if err := db.QueryRow(ctx, "SELECT live FROM scrip_meta.format").Scan(&live); err != nil {
		return err
	}
	return db.QueryRow(ctx, "SELECT "+expression+" FROM "+live+".segment").Scan(into)
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
