package mixed

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/cmd/internal/process"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// folder of the producer, which is compiled with both versions of the SDK.
const producerFolder = "cmd/internal/e2e/mixed/testdata/producer"

// now builds what this version's upgrade needs beside the server.
var now = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "scrip-now-"); err != nil {
		return "", err
	}
	built = append(built, dir)
	for name, program := range map[string]string{"pushsender": "cmd/pushsender", "producer": producerFolder} {
		if err := e2e.BuildOf(filepath.Join(dir, name), "github.com/seed-4a2410e3/scrip/"+program); err != nil {
			return dir, err
		}
	}
	return dir, nil
})

// producer is a program with the SDK of one of the versions.
type producer struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	read  chan struct{} // closed when all was read that it printed

	mu       sync.Mutex
	answered map[string]int    // claims by campaign
	codes    map[string]string // by campaign/customer
	reminded map[string]bool   // campaign/customer whose reminder was set
}

// produce starts a producer. It ends with the test.
func produce(t *testing.T, program, url, name string, campaigns []string) *producer {
	t.Helper()
	p := &producer{t: t, read: make(chan struct{}), answered: map[string]int{}, codes: map[string]string{}, reminded: map[string]bool{}}
	p.cmd = exec.Command(program, append([]string{url, name}, campaigns...)...)
	p.cmd.Stderr = t.Output()
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // fails if it has ended
		<-p.read
		_ = p.cmd.Wait()
	})
	go func() {
		defer close(p.read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.note(lines.Text())
		}
	}()
	return p
}

// note records a printed line. The same claim must have the same code every time.
func (p *producer) note(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	words := strings.Fields(line)
	if len(words) < 4 {
		p.t.Errorf("%s printed %q", p.cmd.Path, line)
		return
	}
	key := words[1] + "/" + words[2]
	switch before, known := p.codes[key]; {
	case words[0] == "remind":
		if words[3] == "reminder_set" {
			p.reminded[key] = true
		} else if !strings.HasSuffix(line, "refused too_late") { // its claim's answer took longer
			p.t.Errorf("%s", line)
		}
	case !strings.Contains(words[3], "-") || known && before != words[3]: // a refusal, or another code
		p.t.Errorf("%s, before %q", line, before)
	default:
		p.codes[key] = words[3]
		p.answered[words[1]]++
	}
}

func (p *producer) answers(campaign string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answered[campaign]
}

// more waits for so many further answers about each of the campaigns.
func (p *producer) more(n int, campaigns ...string) {
	p.t.Helper()
	for _, campaign := range campaigns {
		before := p.answers(campaign)
		streamtest.Eventually(p.t, fmt.Sprintf("%d more answers about %s", n, campaign), func() bool { return p.answers(campaign) >= before+n })
	}
}

// end lets it finish the calls in progress.
func (p *producer) end() {
	p.t.Helper()
	_ = p.stdin.Close()
	<-p.read
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("%s: %v", p.cmd.Path, err)
	}
}

// gateway is a webhook that records deliveries.
type gateway struct {
	*httptest.Server
	mu   sync.Mutex
	keys map[string]map[string]bool // by campaign/customer
}

func newGateway(t *testing.T) *gateway {
	g := &gateway{keys: map[string]map[string]bool{}}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var list []struct {
			Key, Campaign string
			Customer      string `json:"customer_id"`
		}
		if err := json.NewDecoder(r.Body).Decode(&list); err != nil || len(list) == 0 {
			t.Errorf("a sender sent %v, %v", list, err)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, d := range list {
			key := d.Campaign + "/" + d.Customer
			if g.keys[key] == nil {
				g.keys[key] = map[string]bool{}
			}
			g.keys[key][d.Key] = true
		}
	}))
	t.Cleanup(g.Close)
	return g
}

func (g *gateway) delivered() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.keys)
}

// more waits for so many further deliveries.
func (g *gateway) more(t *testing.T, n int) {
	t.Helper()
	before := g.delivered()
	streamtest.Eventually(t, fmt.Sprintf("%d more deliveries", n), func() bool { return g.delivered() >= before+n })
}

// sender starts a push sender, which ends with the test.
func sender(t *testing.T, program, url, name string, g *gateway, args ...string) *process.Process {
	t.Helper()
	p, err := process.Start(process.Command{
		Program: program, Args: append([]string{"--nats", url, "--name", name, "--webhook", g.URL}, args...), Env: os.Environ(), Log: filepath.Join(t.TempDir(), "log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s printed:\n%s", program, p.Output())
		}
	})
	return p
}

// TestRollingUpgrade: two servers, a producer with the SDK and a sender of the older version are replaced one after the other,
// under load. No answered claim and no reminder is lost or doubled. What does not mix, an older sender on a log of this
// version, ends with a sentence.
func TestRollingUpgrade(t *testing.T) {
	program := oldProgram(t)
	was := filepath.Dir(program)
	is, err := now()
	if err != nil {
		t.Fatal(err)
	}
	url := streamtest.Start(t, streamtest.Lanes(lanes)).ClientURL()
	dirs := []string{dataDir(t), dataDir(t), dataDir(t), dataDir(t)}
	serve := func(program, data string) *e2e.Server {
		t.Helper()
		if data != dirs[0] {
			copyKey(t, dirs[0], data)
		}
		s := start(t, program, data, "--roles", "lanes,scheduler,api", "--nats", url, "--lanes", fmt.Sprint(lanes))
		s.Ready()
		return s
	}
	first := serve(program, dirs[0])
	second := serve(program, dirs[1])
	c := newCrowd(t, url, lanes)
	var campaigns []string
	for lane := range lanes {
		campaigns = append(campaigns, c.campaign(lane))
		line := fmt.Sprintf(`{"id":"create-%d","type":"create_campaign","campaign":%q,"codes":1000000,"valid_for":"59m"}`, lane, c.campaign(lane))
		if out, ok := c.request(t.Context(), lane, line); !ok || out.Refused() {
			t.Fatalf("%+v", out)
		}
	}
	g := newGateway(t)
	oldSender := sender(t, filepath.Join(was, "pushsender"), url, "shop", g, "--since", "start")
	oldShop := produce(t, filepath.Join(was, "producer"), url, "old", campaigns)
	oldShop.more(20, campaigns...)
	g.more(t, 10)

	// The SDK and the sender of now, on servers of then.
	newShop := produce(t, filepath.Join(is, "producer"), url, "new", campaigns)
	newShop.more(20, campaigns...)
	sender(t, filepath.Join(is, "pushsender"), url, "shop", g)
	if exit, err := oldSender.Stop(); err != nil || exit != 0 {
		t.Errorf("the older sender ended with %d, %v", exit, err)
	}
	g.more(t, 10)

	// One server of each: lanes that the new one has sealed are closed to the old one, so that the other lanes go on for sure.
	if exit := second.Stop(); exit != 0 {
		t.Errorf("the second server ended with %d", exit)
	}
	serve(e2e.Binary(), dirs[2])
	answered := func() (n int) {
		for _, campaign := range campaigns {
			n += oldShop.answers(campaign) + newShop.answers(campaign)
		}
		return n
	}
	before := answered()
	streamtest.Eventually(t, "50 more answers while both versions serve", func() bool { return answered() >= before+50 })
	if exit := first.Stop(); exit != 0 {
		t.Errorf("the first server ended with %d", exit)
	}
	serve(e2e.Binary(), dirs[3])
	oldShop.more(20, campaigns...)
	newShop.more(20, campaigns...)

	// A producer that finds servers of now only, and a sender of then.
	late := produce(t, filepath.Join(is, "producer"), url, "late", campaigns)
	late.more(20, campaigns...)
	g.more(t, 10)
	refused := sender(t, filepath.Join(was, "pushsender"), url, "other", newGateway(t), "--since", "start")
	if exit := refused.Wait(); exit != 1 || !strings.Contains(refused.Output(), "has format 2, this program knows 1; use a newer scrip") {
		t.Errorf("an older sender ended with %d\n%s", exit, refused.Output())
	}

	reminded := map[string]bool{}
	for _, p := range []*producer{oldShop, newShop, late} {
		p.end()
		for key, code := range p.codes {
			c.codes[key] = code
		}
		for key := range p.reminded {
			reminded[key] = true
		}
	}
	if len(reminded) == 0 {
		t.Error("no reminder was set")
	}
	streamtest.Eventually(t, "every reminder is delivered", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		for key := range reminded {
			if len(g.keys[key]) == 0 {
				return false
			}
		}
		return true
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	for key, keys := range g.keys {
		if len(keys) != 1 || !reminded[key] {
			t.Errorf("reminders of %s, which was set: %v, were delivered as %v", key, reminded[key], keys)
		}
	}
	for lane, from := range judge(t, c, dirs[3]) {
		if from == 0 {
			t.Errorf("lane %d is not sealed", lane)
		}
	}
	t.Logf("%d reminders were set and delivered", len(reminded))
}
