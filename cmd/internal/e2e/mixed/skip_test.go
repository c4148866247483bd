package mixed

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestOneMessageStopsNothingForEver: a forged message stops nothing. One that a newer version sealed stops its lane, until an
// operator has it passed over; backups are taken all the while.
func TestOneMessageStopsNothingForEver(t *testing.T) {
	data := dataDir(t)
	p := start(t, e2e.Binary(), data, "--nats-listen", "127.0.0.1:0", "--lanes", fmt.Sprint(lanes))
	c := newCrowd(t, p.Ready().NATSURL, lanes)
	claims := func(c *crowd) {
		t.Helper()
		for lane := range lanes {
			for i := range 3 {
				c.claim(t.Context(), lane, fmt.Sprint(i))
			}
		}
	}
	for lane := range lanes {
		c.create(t.Context(), lane)
	}
	forged := nats.Header{topology.HeaderFormat: {"9"}, topology.HeaderOwner: {"x"}}
	if _, err := c.js.PublishMsg(t.Context(), &nats.Msg{Subject: topology.Evt(1), Header: forged}); err != nil {
		t.Fatal(err)
	}
	claims(c)

	log := sealedLog(t, c.js, data)
	bounds, err := eventlog.Events(c.js, 0).Bounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	newer := eventlog.EventSealer(log, 0).Encode(eventlog.Header{Owner: "a newer scrip"}, 1, bounds.Last+1, nil)
	newer.Set(topology.HeaderFormat, "3")
	newer.Set(topology.HeaderSeal, log.Seal.Message(topology.EvtStream(0), bounds.Last+1, newer, nil))
	if _, err := c.js.PublishMsg(t.Context(), &nats.Msg{Subject: topology.Evt(0), Header: newer}); err != nil {
		t.Fatal(err)
	}
	// The owner finds out when it writes.
	if _, err := c.js.PublishMsg(t.Context(), &nats.Msg{Subject: topology.LaneCmd(0), Data: []byte(`{"id":"x","type":"void","campaign":"c","code":"x","reason":"x"}`)}); err != nil {
		t.Fatal(err)
	}
	streamtest.Eventually(t, "the lane stops and says what to do", func() bool { return strings.Contains(p.Output(), "--skip-message 0=SEQ") })

	backup := filepath.Join(t.TempDir(), "backup")
	out, err := exec.CommandContext(t.Context(), e2e.Binary(), "backup", backup, "--data", data).CombinedOutput()
	if want := fmt.Sprintf("message %d of %s", bounds.Last+1, topology.EvtStream(0)); err != nil || !strings.Contains(string(out), want) {
		t.Errorf("backup: %v\n%s\nwant %q", err, out, want)
	}
	p.Kill()

	refused := start(t, e2e.Binary(), data, "--nats-listen", "127.0.0.1:0", "--skip-message", fmt.Sprintf("0=%d", bounds.Last))
	if exit := refused.Wait(); exit != 1 || !strings.Contains(refused.Output(), "carries scrip's seal and can be read") {
		t.Errorf("skipping a message that can be read: exit %d", exit)
	}
	for _, args := range [][]string{{"--skip-message", fmt.Sprintf("0=%d", bounds.Last+1)}, nil} {
		p := start(t, e2e.Binary(), data, append([]string{"--nats-listen", "127.0.0.1:0"}, args...)...)
		next := newCrowd(t, p.Ready().NATSURL, lanes)
		next.codes = c.codes // the same answers
		claims(next)
		p.Stop()
	}
	// Also where it is restored.
	restored := dataDir(t)
	p = start(t, e2e.Binary(), data, "--nats-listen", "127.0.0.1:0")
	p.Ready()
	backup = filepath.Join(t.TempDir(), "backup")
	run(t, e2e.Binary(), "backup", backup, "--data", data)
	run(t, e2e.Binary(), "restore", backup, "--data", restored)
	next := newCrowd(t, start(t, e2e.Binary(), restored, "--nats-listen", "127.0.0.1:0").Ready().NATSURL, lanes)
	next.codes = c.codes
	claims(next)
}
