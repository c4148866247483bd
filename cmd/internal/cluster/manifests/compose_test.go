package manifests

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

const docker = "../../../../docker"

// secret is the value of every variable that a file requires.
const secret = "user:s3cret"

// project loads a compose file as docker compose does: schema, variables, merges, references.
func project(t *testing.T, file string, variables ...string) (*types.Project, error) {
	t.Helper()
	o, err := cli.NewProjectOptions([]string{filepath.Join(docker, file)}, cli.WithEnv(variables), cli.WithResolvedPaths(true))
	if err != nil {
		t.Fatal(err)
	}
	return o.LoadProject(context.Background())
}

// required are the variables that a file requires with ${NAME:?…}, and an environment that sets them.
func required(t *testing.T, file string) (names, set []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docker, file))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`\$\{(\w+):\?`).FindAllSubmatch(text, -1) {
		names = append(names, string(m[1]))
		set = append(set, names[len(names)-1]+"="+secret)
	}
	return names, set
}

// noDigest are images whose digest is not known yet, with the reason. One that gets its digest leaves the table.
var noDigest = map[string]string{
	"nats:2.15.2-alpine": "the version that the tests run; docker buildx imagetools inspect nats:2.15.2-alpine prints its digest",
}

var digest = regexp.MustCompile(`^[a-z/]+:[a-z0-9.-]+@sha256:[0-9a-f]{64}$`)

// TestComposeFiles: both files load, not without any of their secrets, and keep to the rules of the house.
func TestComposeFiles(t *testing.T) {
	for _, file := range []string{"compose.yaml", "compose.cluster.yaml"} {
		names, set := required(t, file)
		if len(names) == 0 {
			t.Errorf("%s requires no secret", file)
		}
		for i, name := range names {
			if _, err := project(t, file, slices.Concat(set[:i], set[i+1:])...); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s without %s: %v", file, name, err)
			}
		}
		p, err := project(t, file, set...)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for name, s := range p.Services {
			for _, port := range s.Ports {
				if port.HostIP != "127.0.0.1" {
					t.Errorf("%s, %s: port %d is open to other machines", file, name, port.Target)
				}
			}
			if s.Restart != "unless-stopped" || s.StopGracePeriod == nil {
				t.Errorf("%s, %s: restart %q, stop_grace_period %v", file, name, s.Restart, s.StopGracePeriod)
			}
			if !strings.HasPrefix(s.Image, "postgres") && (!s.ReadOnly || !slices.Contains(s.CapDrop, "ALL")) {
				t.Errorf("%s, %s: read_only %v, cap_drop %v", file, name, s.ReadOnly, s.CapDrop)
			}
			if s.Image == "scrip" && (s.User == "" || strings.HasPrefix(s.User, "0") || s.Environment["SCRIP_CREDENTIALS"] == nil || !slices.Contains(s.SecurityOpt, "no-new-privileges:true")) {
				t.Errorf("%s, %s: user %q, security_opt %v, environment %v", file, name, s.User, s.SecurityOpt, s.Environment)
			}
			if _, reason := noDigest[s.Image]; s.Image != "scrip" && !reason && !digest.MatchString(s.Image) {
				t.Errorf("%s, %s: image %s has no digest", file, name, s.Image)
			}
			for variable := range s.Environment {
				if strings.HasPrefix(variable, "SCRIP_INSECURE") {
					t.Errorf("%s, %s: %s", file, name, variable)
				}
			}
			if file == "compose.cluster.yaml" && s.MemLimit == 0 {
				t.Errorf("%s, %s: no mem_limit", file, name)
			}
		}
	}
}
