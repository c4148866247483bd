package natsd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/seed-4a2410e3/scrip/streams/access/callout"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestTheClusterConfigurationIsLikeTheEmbeddedServer loads docker/nats/cluster.conf as nats-server does, as it is and without
// accounts, as its comment describes. What scrip relies on must be the same there as in the embedded server.
func TestTheClusterConfigurationIsLikeTheEmbeddedServer(t *testing.T) {
	issuer, err := callout.NewIssuer()
	streamtest.Must(t, err)
	store := t.TempDir()
	for name, value := range map[string]string{"NATS_NODE": "nats-1", "NATS_STORE": store, "NATS_USER": "u", "NATS_PASSWORD": "p", "NATS_ISSUER": issuer.Public(),
		"NATS_ROUTES_PASSWORD": "secret", "NATS_ROUTES": "[nats://routes:secret@nats-1:6222,nats://routes:secret@nats-2:6222]"} {
		t.Setenv(name, value)
	}
	const path = "../../docker/nats/cluster.conf"
	raw, err := os.ReadFile(path)
	streamtest.Must(t, err)
	const include, block = "include accounts.conf\n", "#authorization {\n#  user: $NATS_USER\n#  password: $NATS_PASSWORD\n#}\n"
	if !strings.Contains(string(raw), "\n"+include) || !strings.Contains(string(raw), "\n"+block) {
		t.Fatal("cluster.conf does not have the accounts, or not what replaces them")
	}
	text := strings.NewReplacer(include, "", block, strings.ReplaceAll(block, "#", "")).Replace(string(raw))
	without := filepath.Join(t.TempDir(), "cluster.conf")
	streamtest.Must(t, os.WriteFile(without, []byte(text), 0o600))
	for path, users := range map[string]string{path: "SCRIP/u", without: "u"} {
		file, err := server.ProcessConfigFile(path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		user := file.Username
		for _, u := range file.Users {
			user += u.Account.GetName() + "/" + u.Username
		}
		if user != users || (file.AuthCallout != nil) != (user != "u") {
			t.Errorf("%s: the users are %s, log-ins of others: %+v", path, user, file.AuthCallout)
		}
		likeTheEmbedded(t, file, store)
	}
}

func likeTheEmbedded(t *testing.T, file *server.Options, store string) {
	t.Helper()
	embedded, err := natsd.Options{StoreDir: store, Cluster: &natsd.Cluster{Name: "scrip", Listen: "127.0.0.1:0", User: "routes", Password: "secret"}}.ServerOptions()
	streamtest.Must(t, err)
	for _, c := range []struct {
		setting    string
		have, want any
	}{
		{"sync_interval: always", file.SyncAlways, embedded.SyncAlways},
		{"ping_interval", file.PingInterval, embedded.PingInterval},
		{"ping_max", file.MaxPingsOut, embedded.MaxPingsOut},
		{"cluster ping_interval", file.Cluster.PingInterval, embedded.Cluster.PingInterval},
		{"cluster ping_max", file.Cluster.MaxPingsOut, embedded.Cluster.MaxPingsOut},
		{"write_deadline", file.WriteDeadline, embedded.WriteDeadline},
		{"max_connections", file.MaxConn, 1 << 14},
		{"max_pending", file.MaxPending, embedded.MaxPending},
		{"max_closed_clients", file.MaxClosedClients, embedded.MaxClosedClients},
		{"server_name", file.ServerName, "nats-1"},
		{"store_dir", file.StoreDir, store},
		{"routes", len(file.Routes), 2},
		{"user of routes", file.Cluster.Username, embedded.Cluster.Username},
		{"password of routes", file.Cluster.Password, embedded.Cluster.Password},
		{"host of monitoring", file.HTTPHost, "127.0.0.1"},
	} {
		if c.have != c.want {
			t.Errorf("%s is %v in docker/nats/cluster.conf, expected %v", c.setting, c.have, c.want)
		}
	}
	if !file.SyncAlways || file.JetStreamMaxStore < 1<<50 {
		t.Errorf("sync always: %v, max_file_store %d", file.SyncAlways, file.JetStreamMaxStore)
	}
}
