package examples

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m, nil)) }

const (
	page = "../../../streams/PRODUCERS.md"
	// claims of each program.
	claims = 9
	// endLimit is far longer than a program takes, which is a few seconds.
	endLimit = 3 * time.Minute
)

// shop is a server with a producer's key.
type shop struct {
	*e2e.Server
	http, nats string // addresses without credentials
	key        string
}

func open(t *testing.T) *shop {
	t.Helper()
	s := &shop{Server: e2e.NewServer(t, "--roles", "lanes,api", "--lanes", "2", "--nats-listen", "127.0.0.1:0")}
	s.Up()
	for of, host := range map[string]*string{s.Desc.HTTPURL: &s.http, s.Desc.NATSURL: &s.nats} {
		u, err := url.Parse(of)
		if err != nil {
			t.Fatal(err)
		}
		*host = u.Host
	}
	s.key = s.newKey(t, "producer")
	return s
}

// newKey makes a key, and waits until it is in force.
func (s *shop) newKey(t *testing.T, role string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), e2e.Binary(), "access", "create", role, "--role", role, "--data", s.Data).Output()
	if err != nil {
		t.Fatalf("making a key: %v", err)
	}
	key := strings.TrimSpace(string(out))
	streamtest.Eventually(t, "the key is in force", func() bool {
		nc, err := nats.Connect("nats://" + key + "@" + s.nats)
		if err != nil {
			return false
		}
		nc.Close()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.http+"/v1/settings", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil && resp.StatusCode != http.StatusUnauthorized
	})
	return key
}

// program is one of the examples.
type program struct {
	file  string
	with  string // runs it
	needs string // by it
	nats  bool
}

var programs = []program{
	{file: "claim.sh", with: "bash", needs: "curl"},
	{file: "claim.py", with: "python3"},
	{file: "claim.mjs", with: "node"},
	{file: "claim_nats.mjs", with: "node", needs: "npm", nats: true},
}

// run runs a program and returns what it printed, a line for each customer.
func (p program) run(t *testing.T, dir, address, key string, args []string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), endLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.with, append([]string{p.file}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KEY="+key, "URL=http://"+address, "NATS=nats://"+address, "no_proxy=127.0.0.1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", p.file, err, out, stderr.String())
	}
	lines := strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' })
	slices.Sort(lines)
	return lines
}

// TestEveryAnswerThatIsLost: each program claims for some customers behind a proxy that loses every third answer, after the
// effect. It ends with one code for each, and the log has these coupons and no others, though customers may have more. The
// same claims again, after a restart, have the same codes.
func TestEveryAnswerThatIsLost(t *testing.T) {
	s := open(t)
	for i, p := range programs {
		t.Run(p.file, func(t *testing.T) {
			t.Parallel()
			for _, tool := range []string{p.with, p.needs} {
				if _, err := exec.LookPath(tool); tool != "" && err != nil {
					t.Skipf("there is no %s on this machine", tool)
				}
			}
			dir, target := ".", s.http
			lose := loseHTTP
			if p.nats {
				dir, target, lose = withModules(t, p.file), s.nats, loseNATS
			}
			campaign := fmt.Sprint("lost-", i)
			settings := wire.DefaultSettings(1000)
			settings.PerCustomer = 10 // a claim with another id is another coupon
			if out, err := s.Client().CreateCampaign(t.Context(), campaign, settings); err != nil || out.Refused() {
				t.Fatal(out, err)
			}
			args := []string{campaign}
			for n := range claims {
				args = append(args, fmt.Sprint("customer-", n))
			}
			proxy, lost := lose(t, target)
			printed := p.run(t, dir, proxy, s.key, args)
			again := p.run(t, dir, target, s.key, args)
			if lost() < claims/3 {
				t.Errorf("%d answers were lost", lost())
			}
			held := s.holders(t, campaign)
			for code, customer := range held {
				for _, lines := range [][]string{printed, again} {
					if n := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, code) && strings.Contains(line, customer) }); n < 0 {
						t.Errorf("%s holds %s, which is not in\n%s", customer, code, strings.Join(lines, "\n"))
					}
				}
			}
			customers := slices.Compact(slices.Sorted(maps.Values(held)))
			if len(held) != claims || len(customers) != claims || len(printed) != claims || len(again) != claims {
				t.Errorf("%d coupons of %d customers; %d and %d lines were printed, expected %d of each", len(held), len(customers), len(printed), len(again), claims)
			}
			t.Logf("%d answers lost", lost())
		})
	}
}

// holders are the customers by code, as the log has them.
func (s *shop) holders(t *testing.T, campaign string) map[string]string {
	t.Helper()
	js, err := jetstream.New(s.Client().Conn())
	if err != nil {
		t.Fatal(err)
	}
	fold, _, err := e2e.ReadLog(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range fold.Violations {
		t.Error(v)
	}
	return fold.Holders(campaign)
}

// withModules copies files to bin/examples of the repository, where the packages that they import are: npm installs them once.
// Without a registry the test is skipped.
func withModules(t *testing.T, files ...string) string {
	t.Helper()
	dir, err := filepath.Abs("../../../bin/examples")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	lock := read(t, "package-lock.json")
	have, _ := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	_, missing := os.Stat(filepath.Join(dir, "node_modules", ".package-lock.json")) // npm writes it at the end
	for _, name := range append(files, "package.json", "package-lock.json") {
		if err := os.WriteFile(filepath.Join(dir, name), read(t, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if missing == nil && bytes.Equal(lock, have) {
		return dir
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=0", "--fetch-timeout=20000")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		_ = os.RemoveAll(filepath.Join(dir, "node_modules")) // make test looks for it
		t.Skipf("npm cannot install what %s imports: %v\n%s", files, err, out)
	}
	return dir
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

var block = regexp.MustCompile("(?ms)^```(bash|python|js)\n(.*?)^```$")

// TestThePageShowsThePrograms: PRODUCERS.md leads to each program, and what it shows of other languages is in one of them.
func TestThePageShowsThePrograms(t *testing.T) {
	text := string(read(t, page))
	var all strings.Builder
	for _, p := range programs {
		all.Write(read(t, p.file))
		if !strings.Contains(text, "](../cmd/internal/examples/"+p.file+")") {
			t.Errorf("PRODUCERS.md does not lead to %s", p.file)
		}
	}
	shown := block.FindAllStringSubmatch(text, -1)
	if len(shown) < 3 {
		t.Errorf("PRODUCERS.md shows %d programs", len(shown))
	}
	for _, b := range shown {
		if !strings.Contains(all.String(), b[2]) {
			t.Errorf("PRODUCERS.md shows what is in no example:\n%s", b[2])
		}
	}
	var lock struct {
		Packages map[string]struct{ Resolved string }
	}
	if err := json.Unmarshal(read(t, "package-lock.json"), &lock); err != nil || len(lock.Packages) < 2 {
		t.Fatalf("package-lock.json: %v", err)
	}
	for name, p := range lock.Packages {
		if p.Resolved != "" {
			t.Errorf("package-lock.json names the registry of %s; make it with npm install --omit-lockfile-registry-resolved", name)
		}
	}
}
