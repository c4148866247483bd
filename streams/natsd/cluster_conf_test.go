package natsd_test

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/seed-4a2410e3/scrip/streams/natsd"
)

// TestTheClusterConfigurationIsLikeTheEmbeddedServer loads docker/nats/cluster.conf as nats-server does. What scrip relies on
// must be the same there as in the embedded server.
func TestTheClusterConfigurationIsLikeTheEmbeddedServer(t *testing.T) {
	store := t.TempDir()
	for name, value := range map[string]string{"NATS_NODE": "nats-1", "NATS_STORE": store, "NATS_USER": "u", "NATS_PASSWORD": "p"} {
		t.Setenv(name, value)
	}
	file, err := server.ProcessConfigFile("../../docker/nats/cluster.conf")
	if err != nil {
		t.Fatal(err)
	}
	embedded, err := natsd.Options{StoreDir: store, Cluster: &natsd.Cluster{Name: "scrip", Listen: "127.0.0.1:0"}}.ServerOptions()
	if err != nil {
		t.Fatal(err)
	}
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
		{"server_name", file.ServerName, "nats-1"},
		{"store_dir", file.StoreDir, store},
		{"user", file.Username, "u"},
		{"routes", len(file.Routes), 3},
	} {
		if c.have != c.want {
			t.Errorf("%s is %v in docker/nats/cluster.conf, expected %v", c.setting, c.have, c.want)
		}
	}
	if !file.SyncAlways || file.JetStreamMaxStore < 1<<50 {
		t.Errorf("sync always: %v, max_file_store %d", file.SyncAlways, file.JetStreamMaxStore)
	}
}
