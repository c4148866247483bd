package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// actionCommands are the actions of package ops with a command for each, and the fields that it sends; "" = the command succeeds.
var actionCommands = []struct{ action, args, fields string }{
	{"access.create", "access create x --role producer --rate 2000000", `{"name":"x","role":"producer","rate":2000000}`},
	{"access.list", "access list", ""},
	{"access.show", "access show none", `{"key":"none"}`},
	{"access.rotate", "access rotate none", `{"key":"none"}`},
	{"access.revoke", "access revoke none", `{"key":"none"}`},
	{"config.get", "config get reminder.colour", `{"setting":"reminder.colour"}`},
	{"config.set", "config set reminder.rate fast", `{"settings":{"reminder.rate":"fast"}}`},
	{"config.changes", "config changes", ""},
	{"audit.list", "audit --kind theft", `{"kind":"theft"}`},
	{"optout.add", "optout add ann --reason letter", ""},
	{"optout.show", "optout show ann", ""},
	{"optout.remove", "optout remove ann", ""},
	{"status.show", "status", ""},
	{"deadletter.list", "deadletter list --state lost", `{"state":"lost"}`},
	{"deadletter.show", "deadletter show SCRIP_CMD_0.99999.1", `{"id":"SCRIP_CMD_0.99999.1"}`},
	{"deadletter.retry", "deadletter retry SCRIP_CMD_0.99999.1", `{"id":"SCRIP_CMD_0.99999.1"}`},
	{"deadletter.discard", "deadletter discard SCRIP_CMD_0.99999.1", `{"ids":["SCRIP_CMD_0.99999.1"]}`},
	{"webhook.create", "webhook create gopher://x --types coupon.*", `{"url":"gopher://x","types":["coupon.*"]}`},
	{"webhook.list", "webhook list", ""},
	{"webhook.show", "webhook show none", `{"webhook":"none"}`},
	{"webhook.update", "webhook update none --rate 5", `{"webhook":"none","rate":5}`},
	{"webhook.rotate", "webhook rotate none", `{"webhook":"none"}`},
	{"webhook.pause", "webhook pause none", `{"webhook":"none"}`},
	{"webhook.resume", "webhook resume none", `{"webhook":"none"}`},
	{"webhook.delete", "webhook delete none", `{"webhook":"none"}`},
	{"webhook.replay", "webhook replay none --from 2020-01-01T00:00:00Z", `{"webhook":"none","from":"2020-01-01T00:00:00Z"}`},
	{"webhook.test", "webhook test none", `{"webhook":"none"}`},
	{"webhook.rehearse", "webhook rehearse none --fail 3", `{"webhook":"none","fail":3}`},
	{"webhook.deadletters", "webhook deadletters none", `{"webhook":"none"}`},
	{"webhook.retry", "webhook retry none", `{"webhook":"none"}`},
	{"rebuild.start", "rebuild --until 2026-01-01T00:00:00Z", `{"until":"2026-01-01T00:00:00Z"}`},
	{"verify.start", "verify --limit 1001", `{"limit":1001}`},
	{"backup.start", "backup .x", `{"name":".x"}`},
	{"job.show", "job show verify-0", `{"id":"verify-0"}`},
	{"job.list", "job list", ""},
	{"job.stop", "job stop verify-0", `{"id":"verify-0"}`},
	{"coupon.list", "coupon list --campaign c --last-four AAA", `{"campaign":"c","last_four":"AAA"}`},
	{"coupons.void", "coupons void none --all --dry-run", `{"campaign":"none","all":true,"dry_run":true}`},
	{"coupons.extend", "coupons extend none --n 1,2 --most 1 --expires 2099-01-01T00:00:00Z", `{"campaign":"none","n":[1,2],"most":1,"expires_at":"2099-01-01T00:00:00Z"}`},
	{"campaign.clone", "campaign clone none other --codes 5", `{"campaign":"none","to":"other","codes":5}`},
	{"campaign.diff", "campaign diff none none", `{"campaign":"none","with":"none"}`},
	{"campaign.statistics", "campaign statistics none", `{"campaign":"none"}`},
	{"due.list", "due", ""},
	{"campaign.changes", "campaign changes none", `{"campaign":"none"}`},
	{"overview.show", "overview", ""},
	{"log.show", "log", ""},
	{"command.show", "command show none", ""},
	{"deadletter.groups", "deadletter groups", ""},
	{"sender.list", "sender list", ""},
	{"sender.deadletters", "sender deadletters mobile", ""},
	{"sender.discard", "sender discard mobile", `{"sender":"mobile"}`},
	{"webhook.attempts", "webhook attempts none", `{"webhook":"none"}`},
	{"reminder.list", "reminder list c --state lost", `{"campaign":"c","state":"lost"}`},
}

// TestEveryActionHasACommand: the command line sends each action of package ops, and prints the refusal of a bad request as the
// service answers it. Without fields the command succeeds. What answers look like is shown by the other tests, and that HTTP
// and NATS refuse alike by package api.
func TestEveryActionHasACommand(t *testing.T) {
	p := shared(t)
	c := client.New(p.nats().Conn(), client.Options{})
	defer c.Close()
	elsewhere := map[string]string{"codes.export": "TestExportsAreRecorded", "rebuild.undo": "TestRebuild", "rebuild.drop": "TestRebuild"}
	for _, row := range actionCommands {
		elsewhere[row.action] = "here"
		got := p.run(strings.Fields(row.args)...)
		if row.fields == "" {
			if got.code != cli.ExitDone {
				t.Errorf("scrip %s: %+v", row.args, got)
			}
			continue
		}
		err := c.Manage(t.Context(), row.action, json.RawMessage(row.fields), &struct{}{})
		var refused *client.RefusedError
		if !errors.As(err, &refused) {
			t.Errorf("%s %s: %v", row.action, row.fields, err)
			continue
		}
		if why := refused.Outcome.Message; got.code == cli.ExitDone || !strings.Contains(got.out+got.err, why) {
			t.Errorf("scrip %s: exit %d, %s%s\nwant %s", row.args, got.code, got.out, got.err, why)
		}
	}
	for i := range ops.Actions {
		if elsewhere[ops.Actions[i].Name] == "" {
			t.Errorf("no command sends %s", ops.Actions[i].Name)
		}
	}
}
