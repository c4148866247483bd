package client_test

import (
	"os/exec"
	"strings"
	"testing"
)

// A producer who imports the SDK links a NATS client, not a server, a database or a metrics registry.
func TestTheSDKIsLight(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list -deps: %v", err)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 10 {
		t.Fatalf("go list -deps names only %d packages", len(deps))
	}
	for _, dep := range deps {
		for _, heavy := range []string{"nats-server", "jackc/pgx", "prometheus", "spf13", "scrip/projections", "scrip/cmd", "scrip/streams/service", "scrip/streams/lane"} {
			if strings.Contains(dep, heavy) {
				t.Errorf("the SDK depends on %s", dep)
			}
		}
	}
}
