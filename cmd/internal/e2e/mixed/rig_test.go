package mixed

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func TestMain(m *testing.M) {
	os.Exit(e2e.Main(m, func() {
		for _, dir := range built {
			_ = os.RemoveAll(dir)
		}
	}))
}

// built are the directories of programs.
var built []string

// oldVersion is the last commit without seals.
const oldVersion = "0417b2b"

// old builds that version with its push sender and a producer with its SDK, once. go build keeps what it compiles, so later runs take seconds.
var old = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "scrip-"+oldVersion+"-")
	if err != nil {
		return "", err
	}
	built = append(built, dir)
	script := `set -e; git archive ` + oldVersion + ` | tar x -C "$0"; cp -r ` + producerFolder + ` "$0/cmd/"; cd "$0"
		go build -trimpath -buildvcs=false -ldflags=-w -o . ./cmd/scrip ./cmd/pushsender ./cmd/producer`
	cmd := exec.Command("bash", "-c", script, dir)
	cmd.Dir = "../../../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w: %s", oldVersion, err, out)
	}
	return filepath.Join(dir, "scrip"), nil
})

func oldProgram(t *testing.T) string {
	t.Helper()
	if out, err := exec.Command("git", "cat-file", "-e", oldVersion+"^{commit}").CombinedOutput(); err != nil {
		t.Skipf("the history of this clone does not have %s: %s", oldVersion, out)
	}
	program, err := old()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// start starts a server without tables, which is killed when the test ends.
func start(t *testing.T, program, data string, args ...string) *e2e.Server {
	t.Helper()
	if !slices.Contains(args, "--roles") {
		args = append([]string{"--roles", "lanes,scheduler"}, args...)
	}
	s := e2e.NewServer(t, args...)
	s.Program, s.Data = program, data
	s.Begin()
	return s
}

// sealedLog is the log of a server, with the keys in its data directory.
func sealedLog(t *testing.T, js jetstream.JetStream, data string) topology.Log {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(data, "code.key"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := code.ParseKey(string(text))
	if err != nil {
		t.Fatal(err)
	}
	log, found, err := topology.Inspect(t.Context(), js)
	if err != nil || !found {
		t.Fatalf("no log: %v", err)
	}
	return log.WithKey(key)
}

func dataDir(t *testing.T) string { return filepath.Join(projtest.Dir(t), "data") }

// crowd claims, each customer until there is an answer, under one id, straight at the log: as a producer that knows nothing
// of versions.
type crowd struct {
	t     *testing.T
	nc    *nats.Conn
	js    jetstream.JetStream
	lanes int

	mu       sync.Mutex
	codes    map[string]string // answered, by campaign and customer
	answered []int             // by lane
}

func newCrowd(t *testing.T, url string, lanes int) *crowd {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return &crowd{t: t, nc: nc, js: js, lanes: lanes, codes: map[string]string{}, answered: make([]int, lanes)}
}

// campaign is one that lies on a lane.
func (c *crowd) campaign(lane int) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf("c%d", i); topology.LaneOf(name, c.lanes) == lane {
			return name
		}
	}
}

// request sends a request, and retries it until there is an outcome or ctx ends.
func (c *crowd) request(ctx context.Context, lane int, line string) (out wire.Outcome, ok bool) {
	sub, err := c.nc.SubscribeSync(c.nc.NewInbox())
	if err != nil {
		return out, false
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection may be gone
	for ctx.Err() == nil {
		once, cancel := context.WithTimeout(ctx, 3*time.Second)
		_, err := c.js.PublishMsg(once, &nats.Msg{Subject: topology.LaneCmd(lane), Header: nats.Header{topology.HeaderReply: {sub.Subject}}, Data: []byte(line)})
		if err == nil {
			var msg *nats.Msg
			if msg, err = sub.NextMsgWithContext(once); err == nil {
				err = json.Unmarshal(msg.Data, &out)
			}
		}
		cancel()
		if err == nil {
			return out, true
		}
	}
	return out, false
}

func (c *crowd) create(ctx context.Context, lane int) {
	line := fmt.Sprintf(`{"id":"create-%d","type":"create_campaign","campaign":%q,"codes":1000000}`, lane, c.campaign(lane))
	if out, ok := c.request(ctx, lane, line); !ok || out.Refused() {
		c.t.Errorf("creating a campaign on lane %d: %+v", lane, out)
	}
}

// claim claims for a customer; the answer must be the one that there was before, if there was one.
func (c *crowd) claim(ctx context.Context, lane int, customer string) {
	campaign := c.campaign(lane)
	line := fmt.Sprintf(`{"id":"claim-%s","type":"claim","campaign":%q,"customer_id":%q}`, customer, campaign, customer)
	out, ok := c.request(ctx, lane, line)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := campaign + "/" + customer
	switch before, known := c.codes[key]; {
	case out.Refused():
		c.t.Errorf("claim of %s refused: %s", key, out.Refusal)
	case known && before != out.Code:
		c.t.Errorf("%s was answered %s, then %s", key, before, out.Code)
	}
	c.codes[key] = out.Code
	c.answered[lane]++
}

// think is the pause of a worker between two claims.
const think = 10 * time.Millisecond

// run claims on all lanes until stop is called, which waits for answers on their way for as long as ctx lasts.
func (c *crowd) run(ctx context.Context) (stop func()) {
	var workers sync.WaitGroup
	ended := make(chan struct{})
	for lane := range c.lanes {
		for worker := range 3 {
			workers.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-ended:
						return
					case <-ctx.Done():
						return
					case <-time.After(think):
					}
					c.claim(ctx, lane, fmt.Sprintf("%d-%d-%d", lane, worker, i))
					if i%7 == 6 { // a retry gets the same answer
						c.claim(ctx, lane, fmt.Sprintf("%d-%d-%d", lane, worker, i/2))
					}
				}
			})
		}
	}
	return func() { close(ended); workers.Wait() }
}

// more waits for so many further answers on each lane of those.
func (c *crowd) more(n int, lanes ...int) {
	c.t.Helper()
	c.mu.Lock()
	before := append([]int(nil), c.answered...)
	c.mu.Unlock()
	for _, lane := range lanes {
		streamtest.Eventually(c.t, fmt.Sprintf("%d more answers on lane %d", n, lane), func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.answered[lane] >= before[lane]+n
		})
	}
}

// moreOnOne waits for so many further answers on one of the lanes.
func (c *crowd) moreOnOne(n int) {
	c.t.Helper()
	c.mu.Lock()
	before := slices.Clone(c.answered)
	c.mu.Unlock()
	streamtest.Eventually(c.t, fmt.Sprintf("%d more answers on a lane", n), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for lane, answers := range c.answered {
			if answers >= before[lane]+n {
				return true
			}
		}
		return false
	})
}
