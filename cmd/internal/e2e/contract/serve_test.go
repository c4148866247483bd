package contract

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
)

// withoutTables are the roles that need no PostgreSQL: such a server starts in a moment.
const withoutTables = "lanes,scheduler,api"

// serve starts a server of the test's own and waits until it is ready.
func serve(t *testing.T, data string, args, env []string) *rig {
	t.Helper()
	p := begin(t, data, args, env)
	r := &rig{proc: p}
	var err error
	if r.desc, err = p.Ready(); err != nil {
		t.Fatalf("%v\n%s", err, p.Output())
	}
	if r.nc, err = nats.Connect(r.desc.NATSURL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.nc.Close)
	if r.subscriber, err = listen(r.nc); err != nil {
		t.Fatal(err)
	}
	return r
}

func begin(t *testing.T, data string, args, env []string) *e2e.Process {
	t.Helper()
	p, err := e2e.Start(data, filepath.Join(t.TempDir(), "log"), args, append([]string{"SCRIP_NATS_LISTEN=127.0.0.1:0"}, env...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.End)
	return p
}

// TestTheDescriptor: scrip.json has all that clients need, is for its owner alone, and is there when what it names is.
func TestTheDescriptor(t *testing.T) {
	r := server(t)
	path := filepath.Join(r.proc.Data, "scrip.json")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	match(t, []byte(strings.TrimSpace(string(raw))), `{"pid":`+strconv.Itoa(r.proc.PID())+`,"nats_url":"~has:@127.0.0.1:","http_url":"~has:@127.0.0.1:","postgres_url":"~has:postgres://","lanes":4,"sync":"always"}`)
	for _, name := range []string{"scrip.json", "code.key"} {
		if info, err := os.Stat(filepath.Join(r.proc.Data, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want mode 0600", name, info.Mode(), err)
		}
	}
	if key, err := os.ReadFile(filepath.Join(r.proc.Data, "code.key")); err != nil || len(strings.TrimSpace(string(key))) != 64 {
		t.Errorf("code.key is %d bytes, %v; want 64 hex digits", len(key), err)
	}
	for path, want := range map[string]string{"/healthz": "", "/readyz": "", "/metrics": "scrip_"} {
		eventually(t, path+" returns 200", func() bool {
			resp, err := http.Get(r.desc.HTTPURL + path)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode == 200 && strings.Contains(string(body), want)
		})
	}
}

// TestWhatCameDueWhileItWasDown falls when it is back: expiries at once, reminders unless what they announce has
// passed and they are later than the grace; those are dropped and counted.
func TestWhatCameDueWhileItWasDown(t *testing.T) {
	t.Parallel()
	for grace, want := range map[string]string{"1h": `"fired":1,"dropped":0`, "1s": `"fired":0,"dropped":1`} {
		t.Run(grace, func(t *testing.T) {
			t.Parallel()
			data, args := projtest.Dir(t), []string{"--reminder-grace", grace, "--postgres", projtest.URL(t)}
			r := serve(t, data, args, nil)
			r.create(t, "summer", `"codes":9,"expires_at":"`+farAway+`"`)
			r.claim(t, "summer", "ann")
			const lead = 1500 * time.Millisecond
			r.remind(t, "summer", "ann", "expires", "1.5s", before(farAway, lead))
			ends := r.soon(t, "summer", "expires_at", 4*time.Second) // the reminder is due 2.5 s after this, and the kill comes at once
			r.proc.Kill()
			due := before(ends, lead)
			<-time.After(time.Until(instant(ends)))
			r = serve(t, data, args, nil)
			db := connect(t, r.desc.PostgresURL)
			state := map[string]string{"1h": "fired", "1s": "dropped"}[grace]
			eventually(t, "the tables know", func() bool {
				var got string
				err := db.QueryRow(t.Context(), `SELECT k.status || ' ' || m.state FROM scrip.coupon k, scrip.reminder m`).Scan(&got)
				if err != nil && !errors.Is(err, pgx.ErrNoRows) { // killed before the tables had them
					t.Fatal(err)
				}
				return got == "expired "+state
			})
			js, err := r.nc.JetStream()
			if err != nil {
				t.Fatal(err)
			}
			var fired []string
			info := r.stream(t, evtStream(r, "summer"))
			for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
				msg, err := js.GetMsg(info.Config.Name, seq)
				if err != nil {
					t.Fatal(err)
				}
				for _, line := range lines(t, msg.Data) {
					var event struct{ Type string }
					if err := json.Unmarshal(line, &event); err != nil {
						t.Fatal(err)
					}
					if event.Type == "reminders.due" {
						fired = append(fired, string(line))
						match(t, line, `{"type":"reminders.due","campaign":"summer","at":"~time","id":"~text","kind":"expires","due_at":"`+due+`","from_r":1,"through_r":1,`+want+`}`)
					}
				}
			}
			if len(fired) != 1 {
				t.Errorf("it fired %d times: %v", len(fired), fired)
			}
		})
	}
}
