package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestInvalidSettings: no request is sent, the exit code is 2, and the error names the valid values.
func TestInvalidSettings(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"config"}, "needs a command: get, set, history"},
		{[]string{"config", "set"}, "needs KEY and VALUE"},
		{[]string{"config", "set", "reminder.batch"}, "needs VALUE"},
		{[]string{"config", "set", "reminder.colour"}, "there is no setting"},
		{[]string{"config", "set", "reminder.batch", "1", "2"}, `no further "2"`},
		{[]string{"config", "set", "reminder.batch", "0"}, `reminder.batch can not be "0": it must be a whole number from 1 to 500, such as 200, or default`},
		{[]string{"config", "set", "reminder.rate", "fast"}, "from 0 to 1000000"},
		{[]string{"config", "set", "reminder.concurrency", "65"}, "from 1 to 64"},
		{[]string{"config", "set", "reminder.grace", "300"}, "a duration from 1s to 8760h, such as 15m, or default"},
		{[]string{"config", "set", "expiry.pause.summer", "yes"}, "true or false"},
		{[]string{"config", "set", "expiry.pause.sum mer", "true"}, "letters, digits, _ and -"},
		{[]string{"config", "set", "reminder.bacth", "1"}, "did you mean reminder.batch? the settings are reminder.batch, reminder.rate, reminder.concurrency, reminder.grace, deadletter.quote, clock.tolerance, clock.accepted, http.rate, http.burst, expiry.pause.CAMPAIGN, reminder.pause.CAMPAIGN"},
		{[]string{"config", "set", "reminder.batch", "1", "--by", ""}, "name the author"},
		{[]string{"config", "set", "reminder.batch", "1", "--by", "a\nb"}, "printable"},
		{[]string{"config", "get", "reminder.size"}, "there is no setting"},
		{[]string{"config", "get", "a", "b"}, `no further "b"`},
		{[]string{"config", "history", "--limit", "0"}, "from 1 to"},
		{[]string{"config", "hist"}, "did you mean history?"},
	} {
		got := scrip(t, []string{"SCRIP_DATA=" + t.TempDir()}, c.args...)
		if got.code != cli.ExitUsage || !strings.Contains(got.err, c.want) || got.out != "" || !strings.Contains(got.err, "--help'") {
			t.Errorf("scrip %q: exit %d\n stdout %q\n stderr %q\n want exit 2 and %q", c.args, got.code, got.out, got.err, c.want)
		}
	}
	for _, args := range [][]string{{"config", "--help"}, {"config", "set", "--help"}} {
		if got := scrip(t, nil, args...); got.code != 0 || !strings.Contains(got.out, "a duration from 1s to 8760h, default 5m") || !strings.Contains(got.out, "reminder.pause.CAMPAIGN") {
			t.Errorf("scrip %q: %+v", args, got)
		}
	}
}

// TestSettingsWithoutLanes: numbers can be set, shown and traced while no lane has an owner; a pause, whose campaign
// cannot be looked up, is not stored.
func TestSettingsWithoutLanes(t *testing.T) {
	ns := streamtest.Start(t)
	js := ns.JetStream(t)
	ask := func(args ...string) result { return scrip(t, nil, append(args, "--nats", ns.ClientURL())...) }
	if got := ask("config", "get"); got.code != cli.ExitFailed || !strings.Contains(got.err, "there is no log") {
		t.Errorf("without a log: %+v", got)
	}
	if _, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: 2, KeyFingerprint: "k", CmdMaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	if got := ask("config", "history"); got.code != 0 || got.out != "CHANGE  AT  SETTING  WAS  VALUE  BY  IGNORED\n" {
		t.Errorf("before any change: %+v", got)
	}
	got := ask("config", "set", "reminder.pause.summer", "true", "--timeout", "600ms")
	if got.code != cli.ExitFailed || !strings.Contains(got.err, "the campaign summer could not be looked up, so nothing was set") {
		t.Errorf("a pause: %+v", got)
	}
	if got := ask("config", "set", "reminder.batch", "0200", "--by", "Ann, on call"); got.code != 0 || got.out != "reminder.batch: default → 200 (change 1, by Ann, on call)\n" {
		t.Errorf("%+v", got)
	}
	if got := ask("config", "set", "reminder.batch", "300"); got.code != 0 || !strings.HasPrefix(got.out, "reminder.batch: 200 → 300 (change 2, by ") || !strings.Contains(got.out, "@") {
		t.Errorf("who by default: %+v", got)
	}
	// An invalid change, written by hand or by another version.
	kv, err := js.KeyValue(t.Context(), "SCRIP_CONFIG")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Create(t.Context(), "change.0000000003", []byte("\x1b[2Jnonsense")); err != nil {
		t.Fatal(err)
	}
	if got := ask("config", "set", "reminder.grace", "90m", "--by", "ann", "-o", "json"); got.code != 0 ||
		got.out != `{"change":4,"revision":4,"setting":"reminder.grace","value":"1h30m0s","was":"default","by":"ann","at":"2026-11-27T12:00:00.123456789Z"}`+"\n" {
		t.Errorf("%+v", got)
	}
	got = ask("config", "get")
	for _, want := range []string{"reminder.batch        300      no", "reminder.rate         0        yes      -", "reminder.grace        1h30m0s  no       ann", "2026-11-27T12:00:00.123456789Z  4", "ignored changes: 1"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("no %q in\n%s", want, got.out)
		}
	}
	if got := ask("config", "get", "reminder.pause.summer", "-o", "json"); got.code != 0 || got.out != `{"setting":"reminder.pause.summer","value":"false","default":true}`+"\n" {
		t.Errorf("%+v", got)
	}
	got = ask("config", "history")
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	if len(lines) != 5 || !strings.Contains(lines[1], "Ann, on call") || !strings.Contains(lines[2], "reminder.batch  200      300") ||
		!strings.Contains(lines[3], "?[2Jnonsense") || !strings.Contains(lines[3], "not understood") || strings.Contains(got.out, "\x1b") {
		t.Errorf("%s", got.out)
	}
	if got := ask("config", "history", "reminder.batch", "--limit", "1", "-o", "json"); !strings.Contains(got.out, `"left_out":1`) || !strings.Contains(got.out, `"value":"300"`) || strings.Contains(got.out, `"value":"200"`) {
		t.Errorf("%+v", got)
	}
	if got := ask("config", "history", "reminder.colour"); got.code != cli.ExitUsage {
		t.Errorf("%+v", got)
	}
	if got := ask("config", "set", "reminder.grace", "default", "--by", "ann"); got.code != 0 || !strings.Contains(got.out, "1h30m0s → default") {
		t.Errorf("%+v", got)
	}
	if got := ask("config", "get"); !strings.Contains(got.out, "5m0s   yes      ann") || !strings.Contains(got.out, "--reminder-grace") {
		t.Errorf("%+v", got)
	}
}

// configured waits until a server has a change in force.
func (p *process) configured(change any) {
	p.t.Helper()
	wait(p.t, fmt.Sprintf("change %v in force", change), stopLimit, func() bool {
		_, r := p.readiness()
		var c status.ConfigReadiness
		return r.Checks["config"].Detailed(&c) && float64(c.Change) >= change.(float64)
	})
}

// events are the lines of lane 0's event stream of one type, by campaign.
func (p *process) events(kind string) map[string][]map[string]any {
	p.t.Helper()
	d, err := datadir.Find(p.data)
	if err != nil {
		p.t.Fatal(err)
	}
	nc, err := nats.Connect(d.NATSURL)
	if err != nil {
		p.t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		p.t.Fatal(err)
	}
	stream, err := js.Stream(p.t.Context(), topology.EvtStream(0))
	if err != nil {
		p.t.Fatal(err)
	}
	found := map[string][]map[string]any{}
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		msg, err := stream.GetMsg(p.t.Context(), seq)
		if err != nil {
			p.t.Fatal(err)
		}
		for line := range strings.Lines(string(msg.Data)) {
			var e map[string]any
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				p.t.Fatal(err)
			}
			if e["type"] == kind {
				campaign, _ := e["campaign"].(string)
				found[campaign] = append(found[campaign], e)
			}
		}
	}
	return found
}

// TestAPauseHoldsOnARunningServer: of two campaigns on one lane, the reminders of the paused one do not fire although
// later ones of the other do. When the pause ends they fire, or, later than the grace, are dropped.
func TestAPauseHoldsOnARunningServer(t *testing.T) {
	t.Parallel()
	p := serve(t, filepath.Join(dataDir(t), "data"), "--roles", "lanes,scheduler,api", "--lanes", "1", "--reminder-grace", "2h")
	do := func(args ...string) map[string]any {
		t.Helper()
		got := scripNow(t, append(args, "--data", p.data, "-o", "json")...)
		var v map[string]any
		if err := json.Unmarshal([]byte(got.out), &v); got.code != cli.ExitDone || err != nil {
			t.Fatalf("scrip %v: %+v, %v", args, got, err)
		}
		return v
	}
	if got := do("config", "get", "reminder.grace"); got["value"] != "2h0m0s" || got["default"] != true {
		t.Errorf("what the server was started with is the default: %v", got)
	}
	if got := p.run("status"); !strings.Contains(got.out, "SETTINGS") || !strings.Contains(got.out, "all defaults") {
		t.Errorf("status: %+v", got)
	}
	for _, form := range []string{"text", "json"} {
		got := p.run("config", "set", "reminder.pause.autumn", "true", "-o", form)
		if got.code != cli.ExitRefused || !strings.Contains(got.out+got.err, "there is no campaign autumn, so nothing was set") {
			t.Errorf("a campaign that is not there: %+v", got)
		}
	}
	// due makes reminders of the paused campaign due, and 3 s later, when both are open, one of the other, which fires.
	due := func(held, other string) {
		t.Helper()
		do("campaign", "create", held, "--codes", "1", "--opens", "+1h")
		do("campaign", "create", other, "--codes", "1", "--opens", "+1h")
		do("remind", held, "--customer", "ann", "--kind", "opens", "--before", "3s")
		do("remind", other, "--customer", "bob", "--kind", "opens", "--before", "0s")
		p.configured(do("config", "set", "reminder.pause."+held, "true", "--by", "ann")["change"])
		do("campaign", "update", held, "--opens", "+4s") // not before the pause is in force
		do("campaign", "update", other, "--opens", "+4s")
		wait(t, "a reminder of "+other, stopLimit, func() bool { return len(p.events("reminders.due")[other]) == 1 })
		if fired := p.events("reminders.due")[held]; len(fired) != 0 {
			t.Fatalf("%s is paused: %v", held, fired)
		}
	}
	announced := func(campaign string, fired, dropped float64) {
		t.Helper()
		wait(t, "reminders of "+campaign, stopLimit, func() bool { return len(p.events("reminders.due")[campaign]) > 0 })
		for _, e := range p.events("reminders.due")[campaign] {
			if e["fired"] != fired || e["dropped"] != dropped {
				t.Errorf("%v, want %v fired, %v dropped", e, fired, dropped)
			}
		}
	}
	due("summer", "winter")
	if v := do("config", "set", "reminder.pause.summer", "false", "--by", "bob"); v["was"] != "true" {
		t.Errorf("%v", v)
	}
	announced("summer", 1, 0)
	announced("winter", 1, 0)

	p.configured(do("config", "set", "reminder.grace", "1s", "--by", "ann")["change"])
	due("spring", "fall")
	do("config", "set", "reminder.pause.spring", "default", "--by", "bob")
	announced("spring", 0, 1)

	var out struct {
		Changes []struct{ Setting, Value, Was, By, At, Ignored string }
	}
	got := p.run("config", "history", "-o", "json")
	if err := json.Unmarshal([]byte(got.out), &out); err != nil || len(out.Changes) != 5 {
		t.Fatalf("%+v", got)
	}
	for i, want := range []string{"reminder.pause.summer true local:ann", "reminder.pause.summer false local:bob", "reminder.grace 1s local:ann", "reminder.pause.spring true local:ann", "reminder.pause.spring default local:bob"} {
		c := out.Changes[i]
		if at, err := time.Parse(time.RFC3339, c.At); c.Setting+" "+c.Value+" "+c.By != want || err != nil || time.Since(at) > time.Hour || c.Ignored != "" {
			t.Errorf("change %d: %+v, want %s", i+1, c, want)
		}
	}
	wait(t, "check config is ok", time.Minute, func() bool {
		_, r := p.readiness()
		return r.Checks["config"].OK
	})
	if status, body := p.get("/metrics"); status != 200 || !strings.Contains(body, "scrip_config_revision 5") || !strings.Contains(body, "scrip_config_ignored_total 0") {
		t.Errorf("/metrics: %d", status)
	}
	if got := p.run("status"); !strings.Contains(got.out, "up to change 5") {
		t.Errorf("status: %+v", got)
	}
}
