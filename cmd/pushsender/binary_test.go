package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// customers is how many setReminders sets a reminder for: customer-0, customer-1, …
const customers = 20

// setReminders creates three campaigns, sets a reminder one second before the opening for each customer, and then moves the
// openings to 2 s from now, which it returns: no limit of time is on its steps.
func setReminders(ctx context.Context, t *testing.T, c *client.Client) (opens wire.Instant) {
	t.Helper()
	settings := wire.DefaultSettings(10)
	settings.OpensAt = wire.At(time.Now().Add(time.Hour))
	for i := range customers {
		campaign := fmt.Sprintf("camp-%d", i%3)
		if i < 3 {
			if out, err := c.CreateCampaign(ctx, campaign, settings); err != nil || out.Refused() {
				t.Fatalf("%+v, %v", out, err)
			}
		}
		if out, err := c.Remind(ctx, campaign, fmt.Sprint("customer-", i), "opens", time.Second); err != nil || out.Refused() {
			t.Fatalf("%+v, %v", out, err)
		}
	}
	opens = wire.At(time.Now().Add(2 * time.Second))
	patch := wire.Patch{Settings: wire.Settings{OpensAt: opens}}
	patch.Set("opens_at")
	for i := range 3 {
		if out, err := c.UpdateCampaign(ctx, fmt.Sprintf("camp-%d", i), patch); err != nil || out.Refused() {
			t.Fatalf("%+v, %v", out, err)
		}
	}
	return opens
}

// The real server fires reminders. Two pushsenders with a key of role sender, which is all that they need, deliver each of them
// once in total, under the name of their key alone, not before it is due, and end when the key is revoked. A third one, found by
// the server's data directory, delivers them under its own name.
func TestWithTheRealServer(t *testing.T) {
	server := e2e.NewServer(t, "--nats-listen", "127.0.0.1:0", "--roles", "lanes,scheduler,api")
	server.Up()
	scrip := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(e2e.Binary(), append(args, "--data", server.Data)...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("scrip %v: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	key := scrip("access", "create", "mobile", "--role", "sender")
	file := filepath.Join(t.TempDir(), "key")
	streamtest.Must(t, os.WriteFile(file, []byte(key+"\n"), 0o600))
	u, err := url.Parse(server.Desc.NATSURL)
	streamtest.Must(t, err)
	withKey := map[string]string{"SCRIP_NATS": "nats://" + u.Host, "SCRIP_NATS_TOKEN_FILE": file}

	streamtest.Eventually(t, "the key opens NATS, and another name is refused", func() bool {
		p := run(t, withKey, "--name", "other")
		return p.code == cli.ExitFailed && strings.Contains(p.err.String(), "--name mobile")
	})
	// A key in a file is used, and not the servers' credentials in scrip.json.
	onServer := map[string]string{"SCRIP_DATA": server.Data, "SCRIP_NATS_TOKEN_FILE": file}
	for args, want := range map[string]string{"dead --name other": "--name mobile", "retry --name other": "--name mobile"} {
		if p := run(t, onServer, strings.Fields(args)...); p.code != cli.ExitFailed || !strings.Contains(p.err.String(), want) {
			t.Errorf("%s: exit code %d: %s", args, p.code, p.err.String())
		}
	}
	if p := run(t, onServer, "dead", "--name", "mobile"); p.code != cli.ExitDone || !strings.Contains(p.out.String(), "0 customers in 0 dead letters") {
		t.Errorf("dead: exit code %d: %s%s", p.code, p.out.String(), p.err.String())
	}
	mobile, inURL := newOutput(), map[string]string{"SCRIP_NATS": "nats://" + key + "@" + u.Host}
	keyed := []*program{startTo(t, mobile, withKey, "--name", "mobile", "--since", "start"), startTo(t, mobile, inURL, "--name", "mobile", "--since", "start")}
	found := start(t, map[string]string{"SCRIP_DATA": server.Data}, "--since", "start")

	c := server.Client()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	opens := setReminders(ctx, t, c)
	for _, out := range []*output{mobile, found.out} {
		out.await(t, lines(customers))
	}
	if now := wire.At(time.Now()); now < opens.Add(-time.Second) {
		t.Errorf("delivered at %s, due at %s", now, opens.Add(-time.Second))
	}
	found.stop()
	js, err := jetstream.New(c.Conn())
	streamtest.Must(t, err)
	settled(t, js, "pushsender")
	scrip("access", "revoke", "mobile")
	for _, p := range keyed {
		if <-p.ended; p.code != cli.ExitFailed || !strings.Contains(p.err.String(), "pushed ") {
			t.Errorf("exit code %d: %s", p.code, p.err.String())
		}
	}
	for name, out := range map[string]*output{"mobile": mobile, "pushsender": found.out} {
		for i := range customers {
			if n := strings.Count(out.String(), fmt.Sprintf(`"customer_id":"customer-%d"`, i)); n != 1 {
				t.Errorf("%s: customer-%d: delivered %d times", name, i, n)
			}
		}
	}
	if found.code != cli.ExitDone {
		t.Errorf("exit code %d: %s", found.code, found.err.String())
	}
	if _, err := os.Stat(filepath.Join(server.Data, "scrip.json")); err != nil {
		t.Errorf("they took something with them: %v", err)
	}
}

func TestVersion(t *testing.T) {
	if p := run(t, nil, "--version"); p.code != cli.ExitDone || !regexp.MustCompile(`^pushsender \S+, commit \S*, go1\.`).MatchString(p.out.String()) {
		t.Errorf("exit code %d: %q, %s", p.code, p.out.String(), p.err.String())
	}
}
