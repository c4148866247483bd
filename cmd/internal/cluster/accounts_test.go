package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cluster"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
)

// TestAccountsAreForTheLanes: the nodes load the accounts of docker/nats, or, for another number of lanes, a copy of the
// configuration with accounts for these. The issuer of log-ins is stored nowhere.
func TestAccountsAreForTheLanes(t *testing.T) {
	for lanes, own := range map[int]bool{16: false, 4: true} {
		folder := filepath.Join(t.TempDir(), "c")
		o := options(t, folder)
		o.Set = map[string]string{"SCRIP_LANES": fmt.Sprint(lanes)}
		for range 2 { // also at the second start
			c, err := cluster.Open(o)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(filepath.Join(folder, "nats-config", "accounts.conf"))
		if own != (err == nil) || own && string(text) != natsauth.File(lanes) {
			t.Errorf("%d lanes: %v\n%s", lanes, err, text)
		}
		have, _ := os.ReadFile(filepath.Join(folder, "nats-config", "cluster.conf"))
		want, err := os.ReadFile("../../../docker/nats/cluster.conf")
		if err != nil {
			t.Fatal(err)
		}
		if own && string(have) != string(want) {
			t.Errorf("%d lanes: the nodes have\n%s", lanes, have)
		}
		secrets, err := os.ReadFile(filepath.Join(folder, "secrets.env"))
		if err != nil || !strings.Contains(string(secrets), "SCRIP_CODE_KEY=") || strings.Contains(string(secrets), natsauth.IssuerVariable) {
			t.Errorf("secrets.env: %v", err)
		}
	}
}

// TestFoldersThatCannotBeUsed: each with what to do.
func TestFoldersThatCannotBeUsed(t *testing.T) {
	for _, c := range []struct {
		file, text string // in the folder
		lanes      string
		want       string
	}{
		{"secrets.env", "NATS_PASSWORD=a\nPOSTGRES_PASSWORD=b\nSCRIP_PASSWORD=c\nSCRIP_CODE_KEY=short\n", "4", "SCRIP_CODE_KEY: the code key has 5 characters instead of 64"},
		{"secrets.env", "NATS_PASSWORD=a\n", "4", "has no line POSTGRES_PASSWORD="},
		{"other", "", "many", `SCRIP_LANES is "many", expected a number from 1 to 1024`},
		{"other", "", "0", `SCRIP_LANES is "0"`},
	} {
		folder := filepath.Join(t.TempDir(), "c")
		path := filepath.Join(folder, c.file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		o := options(t, folder)
		o.Set = map[string]string{"SCRIP_LANES": c.lanes}
		opened, err := cluster.Open(o)
		if err == nil {
			_ = opened.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.file, err, c.want)
		}
	}
}
