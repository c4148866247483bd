package manifests

import (
	"context"
	"os"
	"os/exec"
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

// project loads a compose file as docker compose does, with its profiles: schema, variables, merges, references.
func project(t *testing.T, file string, variables ...string) (*types.Project, error) {
	t.Helper()
	o, err := cli.NewProjectOptions([]string{filepath.Join(docker, file)}, cli.WithEnv(variables), cli.WithResolvedPaths(true), cli.WithProfiles([]string{"*"}))
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
	"nats:2.15.3-alpine": "the version that the tests run; docker buildx imagetools inspect nats:2.15.3-alpine prints its digest",
}

var digest = regexp.MustCompile(`^[a-z/]+:[a-z0-9.-]+@sha256:[0-9a-f]{64}$`)

// postgresSettings keep connections for scrip from those who do not log in, and from analysts, as in a private PostgreSQL.
var postgresSettings = []string{"authentication_timeout=5s", "max_connections=300", "reserved_connections=50", "max_notify_queue_pages=8192",
	"max_locks_per_transaction=1024", "idle_in_transaction_session_timeout=5min", "deadlock_timeout=3s"}

// lacksSettings are those that arguments of postgres lack.
func lacksSettings(args []string) []string {
	return slices.DeleteFunc(slices.Clone(postgresSettings), func(one string) bool { return slices.Contains(args, one) })
}

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
			if lacks := lacksSettings(s.Command); strings.HasPrefix(s.Image, "postgres") && (len(lacks) > 0 || s.Ulimits["data"] == nil) {
				t.Errorf("%s, %s: lacks %q, or a limit of memory", file, name, lacks)
			}
			if s.Image == "scrip" && (s.User == "" || strings.HasPrefix(s.User, "0") || s.Environment["SCRIP_CREDENTIALS"] == nil || !slices.Contains(s.SecurityOpt, "no-new-privileges:true")) {
				t.Errorf("%s, %s: user %q, security_opt %v, environment %v", file, name, s.User, s.SecurityOpt, s.Environment)
			}
			if strings.HasPrefix(s.Image, "nats:") {
				routes, password := s.Environment["NATS_ROUTES"], s.Environment["NATS_ROUTES_PASSWORD"]
				if password == nil || routes == nil || strings.Count(*routes, "nats://routes:"+*password+"@nats-") != 3 {
					t.Errorf("%s, %s: the nodes join each other without a password", file, name)
				}
				// cluster.conf has monitoring on loopback; a flag would open it.
				if !slices.Equal(s.Command, []string{"--config", "/etc/nats/cluster.conf"}) || !slices.Contains(s.HealthCheck.Test, "http://127.0.0.1:8222/healthz") {
					t.Errorf("%s, %s: arguments %q, health check %q", file, name, s.Command, s.HealthCheck.Test)
				}
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
			for _, v := range s.Volumes {
				if _, err := os.Stat(v.Source); v.Type == types.VolumeTypeBind && (err != nil || !v.ReadOnly) {
					t.Errorf("%s, %s: %s must exist and be mounted to be read: %v", file, name, v.Source, err)
				}
			}
		}
	}
}

// TestMonitoring: both files start Prometheus and Grafana when they are wanted, and these find what they show.
func TestMonitoring(t *testing.T) {
	for _, file := range []string{"compose.yaml", "compose.cluster.yaml"} {
		_, set := required(t, file)
		p, err := project(t, file, set...)
		if err != nil {
			t.Fatal(err)
		}
		value := func(service, name string) string {
			if v := p.Services[service].Environment[name]; v != nil {
				return *v
			}
			return ""
		}
		var want []string
		for name, s := range p.Services {
			if s.Image == "scrip" {
				want = append(want, name+":8080")
				if value("prometheus", "SCRIP_CREDENTIALS") != value(name, "SCRIP_CREDENTIALS") {
					t.Errorf("%s: the credentials of prometheus are not those of %s", file, name)
				}
				if !slices.Contains(strings.Split(value(name, "SCRIP_HTTP_HOST"), ","), name) {
					t.Errorf("%s: %s refuses requests under its name", file, name)
				}
			}
			if wanted := slices.Equal(s.Profiles, []string{"monitoring"}); wanted != (name == "prometheus" || name == "grafana") {
				t.Errorf("%s: %s has the profiles %v", file, name, s.Profiles)
			}
		}
		slices.Sort(want)
		if got := value("prometheus", "TARGETS"); got != strings.Join(want, " ") {
			t.Errorf("%s: prometheus reads %q, want %q", file, got, want)
		}
		for service, targets := range map[string][]string{
			"prometheus": {"/etc/prometheus", "/prometheus"},
			"grafana": {"/etc/grafana/dashboards/scrip.json", "/etc/grafana/provisioning/dashboards/scrip.yaml",
				"/etc/grafana/provisioning/datasources/scrip.yaml", "/var/lib/grafana"},
		} {
			var mounted []string
			for _, v := range p.Services[service].Volumes {
				mounted = append(mounted, v.Target)
			}
			slices.Sort(mounted)
			if !slices.Equal(mounted, targets) {
				t.Errorf("%s, %s mounts %q, want %q", file, service, mounted, targets)
			}
		}
		home := value("grafana", "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH")
		if password, anonymous := value("grafana", "GF_SECURITY_ADMIN_PASSWORD"), value("grafana", "GF_AUTH_ANONYMOUS_ENABLED"); password != "" || anonymous != "false" || home != "/etc/grafana/dashboards/scrip.json" {
			t.Errorf("%s: grafana has the password %q without GRAFANA_PASSWORD, anonymous %q, home %q", file, password, anonymous, home)
		}
		for password, want := range map[string]string{"": "GRAFANA_PASSWORD", "x": "started\n"} {
			start := exec.Command("sh", "-c", strings.ReplaceAll(p.Services["grafana"].Entrypoint[2], "/run.sh", "echo started"))
			start.Env = []string{"GF_SECURITY_ADMIN_PASSWORD=" + password}
			if out, err := start.CombinedOutput(); (err == nil) != (password != "") || !strings.Contains(string(out), want) {
				t.Errorf("%s: grafana with the password %q: %v, %s", file, password, err, out)
			}
		}
		for file, part := range map[string]string{"datasource.yaml": "url: http://prometheus:9090\n", "provider.yaml": "{path: /etc/grafana/dashboards}\n"} {
			if text, err := os.ReadFile(filepath.Join(docker, "grafana", file)); err != nil || !strings.Contains(string(text), part) {
				t.Errorf("%s lacks %q: %v", file, part, err)
			}
		}
	}
}
