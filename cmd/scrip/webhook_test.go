package main

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/webhook/signature"
)

// The life of a webhook on the command line, without a server of scrip: what is stored, shown and refused. The secret is
// shown by create and rotate and by nothing else.
func TestWebhookCommands(t *testing.T) {
	ns := streamtest.Start(t)
	key := [32]byte{5}
	if _, err := topology.Ensure(t.Context(), ns.JetStream(t), topology.Spec{Lanes: 1, KeyFingerprint: code.Fingerprint(key)}); err != nil {
		t.Fatal(err)
	}
	env := []string{"SCRIP_NATS=" + ns.ClientURL(), "SCRIP_DATA=" + t.TempDir(), "SCRIP_CODE_KEY=" + hex.EncodeToString(key[:])}
	run := func(want int, text string, args ...string) string {
		t.Helper()
		got := scrip(t, env, append([]string{"webhook"}, args...)...)
		if got.code != want || !strings.Contains(got.out+got.err, text) {
			t.Errorf("scrip webhook %q: exit %d, want %d and %q\n%s%s", args, got.code, want, text, got.out, got.err)
		}
		return got.out
	}
	run(0, "WEBHOOK", "list")
	var made struct{ ID, Secret, State string }
	out := run(0, "whsec_", "create", "https://shop.example/hooks", "--types", "coupon.*,reminder.due", "--batch", "10", "--by", "ann", "-o", "json")
	if err := json.Unmarshal([]byte(out), &made); err != nil || made.State != "active" {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := signature.Parse(made.Secret); err != nil {
		t.Error(err)
	}
	shown := run(0, "shop.example", "list") + run(0, "ann", "show", made.ID) + run(0, made.ID, "show", made.ID, "-o", "json") + run(0, "active", "list", "-o", "json")
	if strings.Contains(shown, "whsec_") || strings.Contains(shown, made.Secret[6:]) {
		t.Errorf("the secret is shown again:\n%s", shown)
	}
	run(0, "paused", "pause", made.ID)
	run(0, "active", "resume", made.ID)
	if again := run(0, "whsec_", "rotate", made.ID); strings.Contains(again, made.Secret) {
		t.Error("the secret is not new")
	}
	run(0, "active", "replay", made.ID, "--from", "-1h")
	run(0, "active", "update", made.ID, "--rate", "7", "--url", "https://new.example/")
	run(0, "new.example", "list")
	run(cli.ExitUsage, "nothing to change", "update", made.ID)
	run(cli.ExitUsage, "rate is 5000", "update", made.ID, "--rate", "5000")
	run(cli.ExitUsage, "no such webhook", "update", "none", "--rate", "5")
	run(cli.ExitUsage, "no such webhook", "deadletters", "none")
	run(0, "MESSAGE", "deadletters", made.ID)
	run(cli.ExitUsage, "--from", "replay", made.ID)
	run(cli.ExitUsage, "is none of", "create", "https://x.example/", "--types", "reminder.set")
	run(cli.ExitUsage, "give at least one", "create", "https://x.example/")
	run(cli.ExitUsage, "https URL", "create", "gopher://x", "--types", "coupon.*")
	run(cli.ExitUsage, "needs URL", "create")
	run(cli.ExitUsage, "no such webhook", "pause", "none")
	run(cli.ExitUsage, "no such webhook", "show", "none")
	run(cli.ExitFailed, "no server has done", "test", made.ID, "--timeout", "1s")
	run(cli.ExitFailed, "no server has done", "retry", made.ID, "--timeout", "1s")
	run(0, "deleted", "delete", made.ID)
	run(cli.ExitUsage, "no such webhook", "resume", made.ID)

	// All of it is in the audit stream, under a name that nothing proves.
	entries, _, err := audit.Open(ns.JetStream(t), nil).Read(t.Context(), audit.Filter{Kind: audit.Webhooks}, 100)
	var actions []string
	for _, e := range entries {
		if actions = append(actions, e.Action); !strings.HasPrefix(e.Actor, "local:") || !strings.HasPrefix(e.About, made.ID) {
			t.Errorf("%+v", e)
		}
	}
	if got := strings.Join(actions, " "); err != nil || got != "create pause resume rotate replay update test retry delete" || entries[0].Actor != "local:ann" {
		t.Errorf("%s, %v, %+v", got, err, entries)
	}

	env[2] = "SCRIP_CODE_KEY=" // no key here
	run(cli.ExitFailed, "no code key", "create", "https://x.example/", "--types", "coupon.*")
	env[2] = "SCRIP_CODE_KEY=" + strings.Repeat("00", 32)
	run(cli.ExitFailed, "not that of this log", "create", "https://x.example/", "--types", "coupon.*")
}
