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
	"github.com/seed-4a2410e3/scrip/streams/push"
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

// The real server fires reminders; two pushsenders, connected by its data directory, print each reminder once in total, and
// not before it is due.
func TestWithTheRealServer(t *testing.T) {
	server := e2e.NewServer(t, "--nats-listen", "127.0.0.1:0", "--roles", "lanes,scheduler,api")
	server.Up()
	a, b := start(t, map[string]string{"SCRIP_DATA": server.Data}), start(t, nil, "--data", server.Data)

	c, err := client.Connect(server.Desc.NATSURL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	js, err := jetstream.New(c.Conn())
	if err != nil {
		t.Fatal(err)
	}
	p, err := push.New(js, push.Options{Name: "pushsender"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	streamtest.Eventually(t, "they wait for reminders", func() bool { _, err := p.Lag(ctx); return err == nil })

	opens := setReminders(ctx, t, c)
	delivered := func() string { return a.out.String() + b.out.String() }
	streamtest.Eventually(t, "all reminders are delivered", func() bool { return strings.Count(delivered(), "\n") >= customers })
	if now := wire.At(time.Now()); now < opens.Add(-time.Second) {
		t.Errorf("delivered at %s, due at %s", now, opens.Add(-time.Second))
	}
	streamtest.Eventually(t, "nothing is left", func() bool {
		lags, err := p.Lag(ctx)
		for _, l := range lags {
			if l.Pending > 0 || l.Unacked > 0 {
				return false
			}
		}
		return err == nil
	})
	a.stop()
	b.stop()
	for i := range customers {
		if n := strings.Count(delivered(), fmt.Sprintf(`"customer_id":"customer-%d"`, i)); n != 1 {
			t.Errorf("customer-%d: delivered %d times", i, n)
		}
	}
	if a.code != cli.ExitDone || b.code != cli.ExitDone {
		t.Errorf("exit codes %d and %d: %s%s", a.code, b.code, a.err.String(), b.err.String())
	}
	if _, err := os.Stat(filepath.Join(server.Data, "scrip.json")); err != nil {
		t.Errorf("they took something with them: %v", err)
	}
}

// A key of role sender is all that a sender needs: it delivers every reminder, under the name of its key alone, and ends when
// the key is revoked.
func TestWithAKey(t *testing.T) {
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
	if err := os.WriteFile(file, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(server.Desc.NATSURL)
	if err != nil {
		t.Fatal(err)
	}
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
	inURL := map[string]string{"SCRIP_NATS": "nats://" + key + "@" + u.Host}
	a, b := start(t, withKey, "--name", "mobile", "--since", "start"), start(t, inURL, "--name", "mobile", "--since", "start")

	c := server.Client()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	setReminders(ctx, t, c)
	delivered := func() string { return a.out.String() + b.out.String() }
	streamtest.Eventually(t, "all reminders are delivered", func() bool { return strings.Count(delivered(), "\n") >= customers })
	scrip("access", "revoke", "mobile")
	for _, p := range []*program{a, b} {
		streamtest.Eventually(t, "the program ends", func() bool { return strings.Contains(p.err.String(), "pushed ") })
		p.stop()
		if p.code != cli.ExitFailed {
			t.Errorf("exit code %d: %s", p.code, p.err.String())
		}
	}
	for i := range customers {
		if n := strings.Count(delivered(), fmt.Sprintf(`"customer_id":"customer-%d"`, i)); n != 1 {
			t.Errorf("customer-%d: delivered %d times", i, n)
		}
	}
}

func TestVersion(t *testing.T) {
	if p := run(t, nil, "--version"); p.code != cli.ExitDone || !regexp.MustCompile(`^pushsender \S+, commit \S*, go1\.`).MatchString(p.out.String()) {
		t.Errorf("exit code %d: %q, %s", p.code, p.out.String(), p.err.String())
	}
}
