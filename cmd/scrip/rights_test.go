package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server/apitest"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth/authtest"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// tour uses every feature once, of a server in this process and of the command line, and records each subject that servers, the
// command line and users with keys publish and subscribe to.
type tour struct {
	*streamtest.Recorder
	*apitest.Rig
	t    *testing.T
	data string
}

// serve starts the server, again after Stop on the same data.
func (u *tour) serve(postgres string) {
	u.t.Helper()
	u.Rig = apitest.Serve(u.t, func(o *server.Options) {
		o.Sync = natsd.SyncInterval
		o.Data, o.Postgres, o.NATSOptions = u.data, postgres, []nats.Option{u.Option()}
		o.WebhookAllow, o.WebhookHTTP = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, true
	})
}

// at runs a command at a server of NATS.
func (u *tour) at(more []string, line string) result {
	u.t.Helper()
	var out, errs strings.Builder
	m := &Main{In: strings.NewReader(""), Out: &out, Err: &errs, Clock: wall.Machine, Env: func(string) (string, bool) { return "", false }}
	m.natsFlags.More = []nats.Option{u.Option()}
	code := m.Run(u.t.Context(), append(strings.Fields(line), more...))
	return result{code, out.String(), errs.String()}
}

// do runs commands that succeed, and returns what the last one prints.
func (u *tour) do(lines ...string) (out string) {
	u.t.Helper()
	for _, line := range lines {
		got := u.at([]string{"--data", u.data}, line)
		if got.code != cli.ExitDone {
			u.t.Fatalf("scrip %s: %+v", line, got)
		}
		out = got.out
	}
	return out
}

// field runs a command and returns a field of its JSON.
func (u *tour) field(name, line string) string {
	u.t.Helper()
	var fields map[string]any
	if err := json.Unmarshal([]byte(u.do(line+" -o json")), &fields); err != nil {
		u.t.Fatal(line, err)
	}
	return fmt.Sprint(fields[name])
}

// as connects with a key, "" = as the servers' user.
func (u *tour) as(key string) *nats.Conn {
	u.t.Helper()
	opts := append(natsx.Options("tour"), u.Option(), nats.UserInfo(u.User.Username(), password(u.User)))
	if key != "" {
		opts = natsx.Keyed("", append(natsx.Options("tour"), u.Option(), nats.Token(key))...)
	}
	var nc *nats.Conn
	streamtest.Eventually(u.t, "the log-in with a key", func() (ok bool) {
		var err error
		nc, err = nats.Connect(u.NATS, opts...)
		return err == nil
	})
	u.t.Cleanup(nc.Close)
	return nc
}

func password(u *url.Userinfo) string {
	text, _ := u.Password()
	return text
}

// saw waits until a subject that starts so was recorded.
func (u *tour) saw(prefix string) {
	u.t.Helper()
	streamtest.Eventually(u.t, "a subject "+prefix, func() bool {
		return slices.ContainsFunc(u.All(), func(r streamtest.Recorded) bool { return strings.HasPrefix(r.Subject, prefix) })
	})
}

// coupons uses commands of campaigns, coupons and codes.
func (u *tour) coupons() {
	u.do("config set push.merge 0s", "campaign create summer --codes 100 --expires +2h", "campaign create winter --codes 100 --opens +1h", "campaign create partner --codes 0",
		"campaign update winter --codes 200", "campaign pause winter", "campaign resume winter", "campaign clone summer spring --codes 5", "campaign end spring", "campaign list",
		"campaign show summer", "remind winter --customer ann --kind opens --before 1m", "unremind winter --customer ann --kind opens --before 1m")
	code := u.field("code", "claim summer --customer ann")
	u.do("redeem "+code+" --order 1", "rollback "+code+" --order 1", "extend "+code+" --expires +3h", "coupon show "+code, "coupon validate "+code, "customer show ann",
		"void "+code+" --reason tour", "claim summer --customer bob",
		"campaign create flash --codes 5 --opens +1h", "remind flash --customer bob --kind opens --before 1m", "campaign update flash --opens +61s")
	file := filepath.Join(u.t.TempDir(), "codes.csv")
	streamtest.Must(u.t, os.WriteFile(file, []byte("AAAAAAAA-1\nAAAAAAAA-2\n"), 0o600))
	u.do("codes import partner "+file, "codes allot summer --count 2 --batch flyer", "codes allotments summer", "codes print summer flyer --file "+file+".out", "codes export summer",
		"coupons void summer --n 2 --most 1", "overview", "campaign changes summer", "due")
}

// users use keys: the SDK of a producer, the command line of the others.
func (u *tour) users() {
	shop := client.New(u.as(u.Key(u.t, "producer")), client.Options{})
	defer shop.Close()
	for _, campaign := range []string{"summer", "winter", "partner"} { // on both lanes
		_, err := shop.Do(u.t.Context(), wire.Command{Type: wire.Claim, Campaign: campaign, CustomerID: "cid", ID: "cid-" + campaign})
		streamtest.Must(u.t, err)
	}
	for role, lines := range map[string][]string{
		"producer":        {"claim summer --customer dan", "coupon show 7KQ2-9F3M-XW4T"},
		"producer+summer": {"claim summer --customer eve"},
		"support":         {"customer show ann", "campaign show summer"},
		"operator":        {"status", "campaign pause winter", "log", "config get"},
	} {
		key := u.Key(u.t, role)
		for _, line := range lines {
			if got := u.at([]string{"--nats", strings.Replace(u.NATS, "//", "//"+key+"@", 1)}, line); strings.Contains(got.err, "ermission") {
				u.t.Errorf("%s: scrip %s: %+v", role, line, got)
			}
		}
	}
	js, err := jetstream.NewWithAPIPrefix(u.as(u.Key(u.t, "analyst+clear")), strings.TrimSuffix(natsauth.API, "."))
	streamtest.Must(u.t, err)
	stream, err := js.Stream(u.t.Context(), topology.EvtStream(0))
	streamtest.Must(u.t, err)
	_, err = stream.GetMsg(u.t.Context(), 1)
	streamtest.Must(u.t, err)
	id := u.field("id", "access create tour --role support")
	u.do("access list", "access show "+id, "access rotate "+id, "audit")
	u.do("access revoke " + u.IDs["analyst+clear"])
}

// reminders fires one and delivers it, as senders of servers and with a key: it is refused once, and given up by another.
func (u *tour) reminders() {
	for n, keyed := range []bool{false, true} {
		for name, tries := range map[string]int{fmt.Sprint("again-", n): 3, fmt.Sprint("never-", n): 1} {
			key := ""
			if keyed {
				key = strings.TrimSpace(u.do("access create " + name + " --role sender"))
			}
			js, err := jetstream.New(u.as(key))
			streamtest.Must(u.t, err)
			opts := push.Options{Name: name, Since: push.FromStart(), Tries: tries, Pause: 1e6, Logger: streamtest.Logger(u.t)}
			p, err := push.New(js, opts)
			streamtest.Must(u.t, err)
			p.Changed.Watch()
			ctx, cancel := context.WithCancel(u.t.Context())
			var calls atomic.Int32
			ended := make(chan error, 1)
			go func() {
				ended <- p.Run(ctx, func(_ context.Context, all []push.Reminder) error {
					if calls.Add(1) == 1 {
						return &push.Partial{Failed: []int{0}, Err: errors.New("no device")}
					}
					return nil
				})
			}()
			if st := p.Stats(); st.Dead+st.Pushed == 0 {
				p.Changed.WaitFor(u.t, func(struct{}) bool { return p.Stats().Dead+p.Stats().Pushed > 0 })
			}
			cancel()
			streamtest.Must(u.t, <-ended)
			if tries == 1 {
				u.do("sender deadletters " + name)
				_, err := push.Retry(u.t.Context(), js, opts, func(context.Context, []push.Reminder) error { return nil })
				streamtest.Must(u.t, err)
			}
		}
	}
	u.do("sender list", "sender discard never-0 --all", "reminder list summer")
}

// webhooks delivers to one that works and one that does not, over their lives.
func (u *tour) webhooks() {
	var failing atomic.Bool
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if failing.Load() {
			w.WriteHeader(http.StatusGone)
		}
	}))
	u.t.Cleanup(hook.Close)
	id := u.field("id", "webhook create "+hook.URL+" --types coupon.*,reminder.due --schedule 1s --give-up-4xx")
	u.do("webhook test "+id, "claim summer --customer fay")
	u.saw("$JS.ACK.SCRIP_EVT_")
	u.do("webhook replay "+id+" --from -1h", "webhook pause "+id, "webhook resume "+id, "webhook rotate "+id, "webhook attempts "+id, "webhook deadletters "+id, "webhook show "+id)
	u.do("webhook delete " + id)
	u.saw("$JS.API.STREAM.PURGE.SCRIP_PUSH_WAIT")
}

// jobs are backups and others, and a restart.
func (u *tour) jobs() {
	u.at([]string{"--data", u.data}, "doctor") // which finds fault with this machine
	u.do("backup b", "verify", "rebuild", "job list", "replay --type coupon.claimed", "log", "status", "deadletter list", "audit", "codes export summer")
	empty := streamtest.Start(u.t, streamtest.Lanes(2), authtest.Servers(2))
	at := strings.Replace(empty.ClientURL(), "//", "//"+streamtest.ServersUser+":"+streamtest.ServersPassword+"@", 1)
	if got := u.at([]string{"--nats", at}, "restore "+filepath.Join(u.data, "backups", "b")); got.code != cli.ExitDone {
		u.t.Errorf("restore: %+v", got)
	}
}

// TestRights: what servers, the command line and users with keys publish and subscribe to is what package natsauth lists, whose tests
// hold it against the rights. Nothing of it is refused.
func TestRights(t *testing.T) {
	t.Parallel()
	u := &tour{Recorder: &streamtest.Recorder{}, t: t, data: filepath.Join(projtest.Dir(t), "data")}
	postgres := projtest.URL(t)
	u.serve(postgres)
	u.coupons()
	u.users()
	u.reminders()
	u.webhooks()
	for _, row := range actionCommands {
		u.at([]string{"--data", u.data}, row.args)
	}
	u.jobs()
	streamtest.Must(t, u.Stop())
	u.serve(postgres)
	u.do("status")
	streamtest.Must(t, u.Stop())

	const path = "../../streams/access/natsauth/testdata/subjects.txt"
	got := authtest.Subjects(u.All())
	if *updateRights {
		streamtest.Must(t, os.WriteFile(path, []byte(authtest.Text(got)), 0o600))
	}
	want, err := authtest.Read(path)
	streamtest.Must(t, err)
	for line := range got {
		if !want[line] {
			t.Errorf("not in %s: %s; run: go test ./cmd/scrip -run TestRights -update-rights", path, line)
		}
	}
	for line := range want {
		if !got[line] {
			t.Errorf("in %s, and not used: %s; run: go test ./cmd/scrip -run TestRights -update-rights", path, line)
		}
	}
}

var updateRights = flag.Bool("update-rights", false, "write streams/access/natsauth/testdata/subjects.txt")
