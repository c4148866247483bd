package doctor

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

func TestMain(m *testing.M) { os.Exit(projtest.Main(m)) }

// store starts a NATS server with JetStream, which the change may make a bad one.
func store(t *testing.T, change func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, HTTPHost: "127.0.0.1", HTTPPort: server.RANDOM_PORT, JetStream: true,
		StoreDir: t.TempDir(), SyncAlways: true, NoSigs: true, NoLog: true, ServerName: "n1"}
	if change != nil {
		change(o)
	}
	s, err := server.NewServer(o)
	streamtest.Must(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS server is not ready")
	}
	return s
}

// old answers as a NATS server of another version does, until the client has connected.
func old(t *testing.T, version string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	streamtest.Must(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintf(conn, "INFO {\"server_id\":\"x\",\"version\":%q,\"max_payload\":1048576,\"headers\":true,\"proto\":1}\r\n", version)
			go func() {
				buf := make([]byte, 4096)
				for {
					n, err := conn.Read(buf)
					if err != nil {
						return
					}
					for range strings.Count(string(buf[:n]), "PING\r\n") {
						_, _ = conn.Write([]byte("PONG\r\n"))
					}
				}
			}()
		}
	}()
	return "nats://" + ln.Addr().String()
}

func monitor(s *server.Server) string { return "http://" + s.MonitorAddr().String() }

// TestBadDeployments: each way in which a deployment is bad is found, with what to do. Every check has a row.
func TestBadDeployments(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	streamtest.Must(t, err)
	defer taken.Close()
	newer := t.TempDir()
	streamtest.Must(t, os.WriteFile(filepath.Join(newer, "format"), []byte("99\n"), 0o600))
	occupied := filepath.Join(t.TempDir(), "file")
	streamtest.Must(t, os.WriteFile(occupied, nil, 0o600))
	lazy := store(t, func(o *server.Options) { o.SyncAlways = false })
	small := store(t, func(o *server.Options) { o.MaxPayload = 1 << 16 })
	plain := store(t, func(o *server.Options) { o.JetStream = false })
	closed := store(t, func(o *server.Options) { o.Username, o.Password = "u", "p" })
	limited := store(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "u", Password: "p", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"scrip.>", "$JS.API.>", natsauth.UserInfo}}}}}
	})
	database := projtest.URL(t)
	rightless := projtest.Role(t, database, "rightless")
	revoke(t, projtest.Admin(t, database), database)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, c := range []struct {
		name, check string
		change      func(*Options)
		level       Level
		what, fix   string
		silent      bool // something does not answer
	}{
		{"a file as data directory", "data", func(o *Options) { o.Data = occupied }, Fail, "is a file", "--data DIR", false},
		{"a newer format", "data", func(o *Options) { o.Data = newer }, Fail, "has format 99", "newer scrip", false},
		{"a port in use", "ports", func(o *Options) { o.HTTPListen = taken.Addr().String() }, Fail, "cannot listen on " + taken.Addr().String(), "--http-listen", false},
		{"both ports in use", "ports", func(o *Options) { o.NATSListen = taken.Addr().String() }, Fail, "in use", "--nats-listen", false},
		{"NATS away", "nats", func(o *Options) { o.NATS = strings.Replace(gone.URL, "http", "nats", 1) }, Fail, "connecting to nats://", "--nats", false},
		{"NATS without credentials", "nats", func(o *Options) { o.NATS = closed.ClientURL() }, Fail, "Authorization", "USER:PASSWORD", false},
		{"an old NATS", "nats", func(o *Options) { o.NATS = old(t, "2.9.25") }, Fail, "version 2.9.25", "upgrade", true},
		{"an untested NATS", "nats", func(o *Options) { o.NATS = old(t, "2.99.1") }, Warn, "2.99.1", "tested", true},
		{"NATS without fsync", "nats", func(o *Options) { o.NATS, o.Monitor = lazy.ClientURL(), monitor(lazy) }, Fail, "syncs every", "sync_interval: always", false},
		{"NATS that does not show fsync", "nats", func(o *Options) { o.NATS = lazy.ClientURL() }, Warn, "cannot be read", "--monitor", false},
		{"no such monitor", "nats", func(o *Options) { o.NATS, o.Monitor = lazy.ClientURL(), gone.URL }, Warn, "reading its settings", "--monitor", false},
		{"small messages", "nats", func(o *Options) { o.NATS = small.ClientURL() }, Fail, "65536 bytes", "max_payload", false},
		{"no JetStream", "nats", func(o *Options) { o.NATS, o.Monitor = plain.ClientURL(), monitor(plain) }, Fail, "JetStream", "jetstream", true},
		{"PostgreSQL away", "postgres", func(o *Options) { o.Postgres = "postgres://u:secret@" + strings.TrimPrefix(gone.URL, "http://") + "/x" }, Fail, "connecting to PostgreSQL", "--postgres", false},
		{"a role without rights", "postgres", func(o *Options) { o.Postgres = rightless }, Fail, "may not make schemas", "GRANT CREATE, TEMPORARY ON DATABASE", false},
		{"sessions that wait in transactions", "postgres", func(o *Options) { o.Postgres = database + "&idle_in_transaction_session_timeout=0" }, Warn, "is 0, which is no limit", "idle_in_transaction_session_timeout = '5min'", false},
		{"servers with permissions", "rights", func(o *Options) { o.NATS = "nats://u:p@" + limited.Addr().String() }, Fail, "user u of account $G, as which servers connect, lacks ", "scrip nats config --lanes 4", false},
		{"wrong credentials", "rights", func(o *Options) { o.As = closed.ClientURL() }, Fail, "connecting as this user", "scrip env", false},
		{"a clock that is set", "clock", func(o *Options) { o.Clock = &stepping{Clock: wall.Machine} }, Warn, "the clock was set by ", "synchronize", false},
		{"a clock that is wrong", "clock", func(o *Options) { o.Postgres, o.Clock = database, &stepping{wall.Machine, true} }, Fail, " behind this machine's", "synchronize", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Data: t.TempDir(), NATSListen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0", only: c.check}
			if c.silent {
				o.wait = 200 * time.Millisecond
			}
			c.change(&o)
			all, err := Run(t.Context(), o)
			streamtest.Must(t, err)
			if !slices.ContainsFunc(all, func(f Finding) bool {
				return f.Check == c.check && f.Level == c.level && strings.Contains(f.What, c.what) && strings.Contains(f.Fix, c.fix)
			}) {
				t.Errorf("no finding %s %s %q with fix %q in\n%+v", c.check, c.level, c.what, c.fix, all)
			}
			for _, f := range all {
				if (f.Level == OK) != (f.Fix == "") || f.What == "" || !slices.ContainsFunc(checks, func(c check) bool { return c.name == f.Check }) {
					t.Errorf("%+v", f)
				}
				if strings.Contains(f.What+f.Fix, "secret") {
					t.Errorf("a password is shown: %+v", f)
				}
			}
		})
	}
}

// stepping is a clock that is set ahead by an hour after its first reading.
type stepping struct {
	wall.Clock
	ahead bool
}

func (s *stepping) Now() time.Time {
	now := s.Clock.Now()
	if s.ahead {
		now = now.Add(time.Hour)
	}
	s.ahead = true
	return now
}

// revoke takes away what every role may do by default.
func revoke(t *testing.T, admin, database string) {
	t.Helper()
	db, err := pgx.Connect(t.Context(), admin)
	streamtest.Must(t, err)
	defer db.Close(t.Context())
	u, err := url.Parse(database)
	streamtest.Must(t, err)
	if _, err := db.Exec(t.Context(), "REVOKE TEMPORARY ON DATABASE "+strings.TrimPrefix(u.Path, "/")+" FROM PUBLIC"); err != nil {
		t.Fatal(err)
	}
}

// TestBounds: what no test can make on every machine, a slow disk or little memory, is judged by its bounds.
func TestBounds(t *testing.T) {
	for _, c := range []struct {
		what      string
		got, want Level
	}{
		{"a fast fsync", most(time.Millisecond, syncBound), OK},
		{"a slow fsync", most(8*time.Millisecond, syncBound), Warn},
		{"a very slow fsync", most(time.Second, syncBound), Fail},
		{"room", least(20*gib, spaceBound), OK},
		{"little room", least(2*gib, spaceBound), Warn},
		{"no room", least(1, spaceBound), Fail},
		{"memory", least(4*gib, memoryBound), OK},
		{"little memory", least(gib, memoryBound), Warn},
		{"files", least(1<<20, filesBound), OK},
		{"few files", least(4096, filesBound), Warn},
		{"hardly any files", least(256, filesBound), Fail},
		{"a skew", most(time.Second, clockBound), Warn},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.what, c.got, c.want)
		}
	}
	for _, c := range []struct {
		levels []Level
		want   Level
	}{{nil, OK}, {[]Level{OK, Warn, OK}, Warn}, {[]Level{Warn, Fail, OK}, Fail}} {
		var all []Finding
		for _, l := range c.levels {
			all = append(all, Finding{Level: l})
		}
		if got := Worst(all); got != c.want {
			t.Errorf("%v: %s, want %s", c.levels, got, c.want)
		}
	}
}

// TestAGoodDeployment: a new server's machine, and a good NATS and PostgreSQL, have no finding that fails.
func TestAGoodDeployment(t *testing.T) {
	s := store(t, nil)
	data := filepath.Join(t.TempDir(), "new", "data")
	all, err := Run(t.Context(), Options{Data: data, NATSListen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0",
		NATS: s.ClientURL(), Monitor: monitor(s), Postgres: projtest.URL(t)})
	streamtest.Must(t, err)
	seen := map[string]bool{}
	for _, f := range all {
		seen[f.Check] = true
		machine := slices.Contains([]string{"disk", "space", "memory", "files"}, f.Check) // as good as the machine of the test
		if f.Level != OK && !machine {
			t.Errorf("%+v", f)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(data, ".scrip-doctor-*")); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
	for _, c := range checks {
		if !seen[c.name] && c.name != "rights" {
			t.Errorf("check %s found nothing", c.name)
		}
	}
}
