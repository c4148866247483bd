package mixed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/check"
	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const lanes = 2

var bothLanes = []int{0, 1}

// judge holds the log against what was answered: every answered claim is in it, once, and no message of the older version
// stands behind the step that sealing began with.
func judge(t *testing.T, c *crowd, data string) (sealedFrom []uint64) {
	t.Helper()
	log := sealedLog(t, c.js, data)
	fold, ends, err := check.Log(t.Context(), c.js, log)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range fold.Violations {
		t.Error(v)
	}
	holders := map[string]string{}
	for lane := range c.lanes {
		campaign := c.campaign(lane)
		for code, customer := range fold.Holders(campaign) {
			if other, twice := holders[campaign+"/"+customer]; twice {
				t.Errorf("%s of %s holds %s and %s", customer, campaign, other, code)
			}
			holders[campaign+"/"+customer] = code
		}
		from, unsealed := uint64(0), 0
		for seq := uint64(1); seq <= ends[lane]; seq++ {
			raw, err := eventlog.Events(c.js, lane).Get(t.Context(), seq)
			if err != nil {
				t.Fatal(err)
			}
			switch valid := log.Seal.Valid(topology.EvtStream(lane), seq, raw.Header, raw.Data); {
			case valid && from == 0:
				from = seq
				if len(raw.Data) != 0 || raw.Header.Get(topology.HeaderSealedFrom) != fmt.Sprint(seq) {
					t.Errorf("lane %d: sealing begins with message %d of %d bytes, which says %v", lane, seq, len(raw.Data), raw.Header)
				}
			case !valid && from != 0:
				unsealed++
			}
		}
		if unsealed != 0 {
			t.Errorf("lane %d: %d messages without a seal behind message %d", lane, unsealed, from)
		}
		sealedFrom = append(sealedFrom, from)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, code := range c.codes {
		if holders[key] != code {
			t.Errorf("%s was answered %s, the log says %q", key, code, holders[key])
		}
	}
	t.Logf("%d answered claims, %d in the log, sealed from %v", len(c.codes), len(holders), sealedFrom)
	return sealedFrom
}

// TestAnOldAndANewServerNeverBothAnswer: both run on one log under load, are stopped in their tracks and killed. A lane
// that the new one has taken is never answered for by the old one again.
func TestAnOldAndANewServerNeverBothAnswer(t *testing.T) {
	program := oldProgram(t)
	nats := streamtest.Start(t, streamtest.Lanes(lanes))
	dataOld, dataNew := dataDir(t), dataDir(t)
	before := start(t, program, dataOld, "--nats", nats.ClientURL(), "--lanes", fmt.Sprint(lanes))
	before.Ready()
	copyKey(t, dataOld, dataNew)
	c := newCrowd(t, nats.ClientURL(), lanes)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for lane := range lanes {
		c.create(ctx, lane)
	}
	stop := c.run(ctx)
	c.more(50, bothLanes...)

	after := start(t, e2e.Binary(), dataNew, "--nats", nats.ClientURL())
	after.Ready()
	shareSettings(t, program, nats.ClientURL())
	sealed := func(lane int) bool {
		tail, err := eventlog.Events(c.js, lane).Tail(t.Context())
		return err == nil && tail.Message != nil && tail.Message.SealedFrom != 0
	}
	streamtest.Eventually(t, "the new server seals a lane", func() bool { return slices.ContainsFunc(bothLanes, sealed) })

	// The old one is stopped in its tracks, with a write on its way perhaps; its lanes go to the new one.
	before.Signal(syscall.SIGSTOP)
	streamtest.Eventually(t, "the new server seals all lanes", func() bool { return sealed(0) && sealed(1) })
	c.more(50, bothLanes...)
	before.Signal(syscall.SIGCONT)
	c.moreOnOne(50) // the old one takes a lane back, and stops there: either lane

	// Left alone, the old one decides nothing.
	after.Kill()
	streamtest.Eventually(t, "the old server refuses both lanes", func() bool {
		output := before.Output()
		return slices.IndexFunc(bothLanes, func(lane int) bool { return !strings.Contains(output, fmt.Sprintf("lane=%d err=\"lane stopped", lane)) }) < 0
	})
	c.mu.Lock()
	answered := slices.Clone(c.answered)
	c.mu.Unlock()
	before.Kill()
	c.mu.Lock()
	if !slices.Equal(answered, c.answered) {
		t.Errorf("answers while only the old server ran: %v, then %v", answered, c.answered)
	}
	c.mu.Unlock()

	start(t, e2e.Binary(), dataNew, "--nats", nats.ClientURL()).Ready()
	c.more(50, bothLanes...)
	stop()
	if t.Failed() {
		return
	}
	for lane, from := range judge(t, c, dataNew) {
		if from == 0 {
			t.Errorf("lane %d is not sealed", lane)
		}
	}
}

// copyKey gives another server the log's code key.
func copyKey(t *testing.T, from, to string) {
	t.Helper()
	key, err := os.ReadFile(filepath.Join(from, "code.key"))
	if err == nil {
		err = os.MkdirAll(to, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(to, "code.key"), key, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestWhatAnOldServerLeftLoads: its data directory with log, settings and snapshots, and its backup.
func TestWhatAnOldServerLeftLoads(t *testing.T) {
	program := oldProgram(t)
	data := dataDir(t)
	p := start(t, program, data, "--nats-listen", "127.0.0.1:0", "--lanes", fmt.Sprint(lanes))
	c := newCrowd(t, p.Ready().NATSURL, lanes)
	for lane := range lanes {
		c.create(t.Context(), lane)
		for i := range 20 {
			c.claim(t.Context(), lane, fmt.Sprint(i))
		}
	}
	run(t, program, "config", "set", "reminder.rate", "1000", "--by", "ann", "--data", data)
	settings := run(t, program, "config", "history", "--data", data)
	backup := filepath.Join(t.TempDir(), "backup")
	run(t, program, "backup", backup, "--data", data)
	if exit := p.Stop(); exit != 0 { // writes snapshots
		t.Fatalf("the old server ended with %d", exit)
	}
	restored := dataDir(t)
	run(t, e2e.Binary(), "restore", backup, "--data", restored)
	for _, data := range []string{data, restored} {
		p := start(t, e2e.Binary(), data, "--nats-listen", "127.0.0.1:0")
		next := newCrowd(t, p.Ready().NATSURL, lanes)
		next.codes = c.codes // the same answers
		for lane := range lanes {
			for i := range 25 {
				next.claim(t.Context(), lane, fmt.Sprint(i))
			}
		}
		if now := run(t, e2e.Binary(), "config", "history", "--data", data); now != settings {
			t.Errorf("the settings are\n%s, they were\n%s", now, settings)
		}
		output := p.Output()
		if data != restored && (strings.Contains(output, "snapshot not used") || strings.Count(output, "replayed=0") < lanes) {
			t.Errorf("the snapshots of the old server were not used")
		}
		for lane, from := range judge(t, next, data) {
			if from == 0 {
				t.Errorf("lane %d is not sealed", lane)
			}
		}
		for key := range next.codes { // each log goes on in its own way
			if strings.HasSuffix(key, "/20") || strings.HasSuffix(key, "/21") || strings.HasSuffix(key, "/22") || strings.HasSuffix(key, "/23") || strings.HasSuffix(key, "/24") {
				delete(next.codes, key)
			}
		}
		p.Kill()
	}
}

func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("scrip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
