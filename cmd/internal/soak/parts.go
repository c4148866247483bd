package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// part is one of the long runs.
type part struct {
	name   string
	weight int    // of its share of the time
	dir    string // its package
	// build makes the program: out is where. Empty = go test -c.
	build []string
	// apart is what starting and looking at the end takes, which the program's own limit of time does not cover.
	apart time.Duration
	// again repeats the program, with the next seed, while there is time for another run: its own length is fixed.
	again bool
	args  func(last time.Duration, seed uint64) []string
}

// tests are the arguments of a test binary.
func tests(pattern string, more ...any) []string {
	args := []string{"-test.v", "-test.timeout=0", "-test.run=" + pattern}
	for i := 0; i+1 < len(more); i += 2 {
		args = append(args, fmt.Sprintf("-%s=%v", more[i], more[i+1]))
	}
	return args
}

// simulation runs one simulated world.
func simulation(_ time.Duration, seed uint64) []string {
	return tests("^TestSimulation$", "sim.seed", seed)
}

// many is more rounds than there is time for.
const many = 1_000_000

// parts are all of them, in their order.
var parts = []part{
	{name: "kill", weight: 3, dir: "cmd/internal/e2e/crash", apart: 20 * time.Second, args: func(last time.Duration, seed uint64) []string {
		return tests("^TestKillNine$", "crash.rounds", many, "crash.for", last, "crash.seed", seed)
	}},
	{name: "power", weight: 3, dir: "cmd/internal/e2e/power", apart: 30 * time.Second, args: func(last time.Duration, seed uint64) []string {
		return tests("^TestPowerCuts$", "power.rounds", many, "power.for", last, "power.seed", seed)
	}},
	{name: "chaos", weight: 4, dir: "cmd/internal/e2e/chaos", apart: time.Minute, args: func(last time.Duration, seed uint64) []string {
		return tests("^TestChaos$", "chaos.for", last, "chaos.reminders", max(5_000, int(last.Seconds())*500), "chaos.seed", seed)
	}},
	{name: "chaos-cluster", weight: 4, dir: "cmd/internal/e2e/chaos", apart: 90 * time.Second, args: func(last time.Duration, seed uint64) []string {
		return tests("^TestChaos$", "chaos.for", last, "chaos.faults", many, "chaos.seed", seed)
	}},
	{name: "cluster", weight: 2, dir: "cmd/internal/cluster", apart: 40 * time.Second, args: func(last time.Duration, seed uint64) []string {
		return tests("^TestClusterUnderFaults$", "cluster.for", last, "cluster.seed", seed)
	}},
	{name: "api", weight: 1, dir: "cmd/internal/api/fuzz", apart: 30 * time.Second, args: func(last time.Duration, _ uint64) []string { // its choices are go's
		return tests("^$", "test.fuzz", "^FuzzV1$", "test.fuzztime", last, "test.fuzzminimizetime", "10s", "test.parallel", 2, "test.fuzzcachedir", filepath.Join(os.TempDir(), "scrip-fuzz-v1"))
	}},
	{name: "doors", weight: 3, dir: "cmd/internal/e2e/doors", apart: 30 * time.Second, args: func(last time.Duration, seed uint64) []string {
		return tests("^TestClaimsBesideOthers$", "doors.for", last, "doors.seed", seed)
	}},
	{name: "lists", weight: 3, dir: "cmd/internal/e2e/doors", apart: 40 * time.Second, args: func(last time.Duration, seed uint64) []string {
		return tests("^TestClaimsBesideLists$", "lists.for", last, "lists.seed", seed, "lists.coupons", min(1_600_000, 20_000+3000*int(last.Seconds())))
	}},
	{name: "readers", weight: 10, dir: "cmd/internal/e2e/readers", apart: 40 * time.Second,
		args: func(last time.Duration, seed uint64) []string {
			return tests("^TestRebuildsBesideReaders$", "readers.for", last, "readers.seed", seed)
		}},
	{name: "reads", weight: 3, dir: "cmd/internal/api", again: true, args: func(time.Duration, uint64) []string {
		return tests("^TestReadsAreBounded$", "reads.messages", 100_000)
	}},
	{name: "postgres", weight: 2, dir: "projections/pgd", again: true, args: func(time.Duration, uint64) []string { return tests(".") }},
	{name: "backup", weight: 1, dir: "streams/backup", again: true, args: func(time.Duration, uint64) []string {
		return tests("^TestOneServerBecomesThreeAndOneAgain$", "backup.mib", 72)
	}},
	{name: "lanes", weight: 1, dir: "streams/lane/sim", again: true, args: simulation},
	{name: "scheduler", weight: 1, dir: "streams/scheduler", again: true, args: simulation},
	{name: "peers", weight: 1, dir: "cmd/scripbench", again: true, build: []string{"go", "build", "-o"}, args: func(time.Duration, uint64) []string {
		return []string{"run", "claim-hot", "claim-request", "sold-out", "--n", "5000", "--for", "2s", "--runs", "1"}
	}},
}

// choose returns the parts with those names, all of them for none.
func choose(names string) ([]part, error) {
	if names == "" {
		return parts, nil
	}
	var chosen []part
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if i < 0 {
			var all []string
			for _, p := range parts {
				all = append(all, p.name)
			}
			return nil, fmt.Errorf("-parts: there is no part %q; the parts are %s", name, strings.Join(all, ","))
		}
		chosen = append(chosen, parts[i])
	}
	return chosen, nil
}

// share is the time of the first of some parts that are left: what others have not used is for those after them.
func share(left time.Duration, of []part) time.Duration {
	sum := 0
	for _, p := range of {
		sum += p.weight
	}
	return left * time.Duration(of[0].weight) / time.Duration(sum)
}

// last is how long the program of a part is to run so that all of it fits into its share.
func (p part) last(share time.Duration) time.Duration {
	return max(share-p.apart, share/3).Truncate(time.Second)
}

// late is when a part that goes on has failed.
func late(share time.Duration) time.Duration { return share + max(share/2, time.Minute) }

// done is what the tests print of what they did, such as "soak: 12 kills".
var done = regexp.MustCompile(`(?m)soak: (\d+) (.+)$`)

// work sums what a part did.
func work(output string) string {
	var kinds []string
	sums := map[string]int{}
	for _, found := range done.FindAllStringSubmatch(output, -1) {
		n, _ := strconv.Atoi(found[1]) // digits
		if !slices.Contains(kinds, found[2]) {
			kinds = append(kinds, found[2])
		}
		sums[found[2]] += n
	}
	for i, kind := range kinds {
		kinds[i] = fmt.Sprint(sums[kind], " ", kind)
	}
	return strings.Join(kinds, ", ")
}

// program is where a part's program is built.
func (p part) program(out string) string {
	if p.build != nil {
		return filepath.Join(out, filepath.Base(p.dir))
	}
	return filepath.Join(out, filepath.Base(p.dir)+".test")
}
