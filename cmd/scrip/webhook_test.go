package main

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/streams/webhook/signature"
)

// TestWebhookCommands: what the commands print, over the life of a webhook. The secret is shown by create and rotate and by nothing
// else. Refusals are shown by TestEveryActionHasACommand, and the audit stream's entries by package api.
func TestWebhookCommands(t *testing.T) {
	p := shared(t)
	receiver := httptest.NewUnstartedServer(nil) // whose certificate the server does not trust
	receiver.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	receiver.StartTLS()
	defer receiver.Close()
	made := p.must("webhook", "create", receiver.URL, "--types", "coupon.extended,reminder.due", "--campaign", "without-events", "--batch", "10", "--by", "ann")
	id, secret := made["id"].(string), made["secret"].(string)
	if _, err := signature.Parse(secret); err != nil || made["state"] != "active" {
		t.Errorf("%v %v", made, err)
	}
	shown := ""
	for _, args := range [][]string{{"list"}, {"show", id}, {"show", id, "-o", "json"}, {"list", "-o", "json"}} {
		got := p.run(append([]string{"webhook"}, args...)...)
		if shown += got.out; got.code != 0 || !strings.Contains(got.out, receiver.URL) {
			t.Errorf("%q: %+v", args, got)
		}
	}
	if strings.Contains(shown, "whsec_") || strings.Contains(shown, secret[6:]) {
		t.Errorf("the secret is shown again:\n%s", shown)
	}
	if again := p.must("webhook", "rotate", id); again["secret"] == secret || again["secret"] == "" {
		t.Error("the secret is not new")
	}
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{0, "paused", []string{"pause", id}},
		{0, "active", []string{"resume", id}},
		{0, "active", []string{"replay", id, "--from", "2026-01-01T00:00:00Z"}},
		{0, "active", []string{"update", id, "--rate", "7", "--url", receiver.URL + "/new", "--schedule", "1s,2s", "--give-up-4xx"}},
		{0, "/new", []string{"list"}},
		{0, "1s,2s", []string{"show", id}},
		{cli.ExitFailed, "none of the last 1,000", []string{"rehearse", id}},
		{0, "MESSAGE", []string{"deadletters", id}},
		{cli.ExitUsage, "--from", []string{"replay", id}},
		{cli.ExitUsage, "needs --types", []string{"create", "https://x.invalid/"}},
		{cli.ExitRefused, "nothing to change", []string{"update", id}},
		{cli.ExitFailed, "the test request was not delivered", []string{"test", id}},
		{0, "deleted", []string{"delete", id}},
		{cli.ExitRefused, "no such webhook", []string{"resume", id}},
	} {
		p.expect(c.code, c.want, append([]string{"webhook"}, c.args...)...)
	}
	if entries := p.must("audit", "--kind", "webhooks")["items"].([]any); entries[len(entries)-1].(map[string]any)["actor"] != "local:ann" {
		t.Errorf("recorded %v", entries)
	}
}
