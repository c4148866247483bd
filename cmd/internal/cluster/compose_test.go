package cluster_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cluster"
)

func write(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "compose.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func none(string) (string, bool) { return "", false }

func TestReadRefusesWhatItCannotRun(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"services: [", "yaml"},
		{"services: {}", "no services"},
		{"services: {a: {image: redis}}", `image "redis"`},
		{"services: {a: {image: nats, command: ['${WHO}']}}", "command: variable WHO is not set"},
		{"services: {a: {image: nats, environment: {X: '${WHO:?set it}'}}}", "X: variable WHO is not set"},
		{"services: {a: {image: nats, environment: {X: 'pay $5'}}}", "write $$"},
		{"services: {a: {image: nats, volumes: [data]}}", "SOURCE:DIRECTORY"},
		{"services: {a: {image: nats, depends_on: {b: {condition: service_healthy}}}}", "must be a service"},
		{"services: {a: {image: nats, depends_on: {a: {condition: service_started}}}}", "service_healthy"},
		{"services: {a: {image: nats, depends_on: {b: {condition: service_healthy}}}, b: {image: nats, depends_on: {a: {condition: service_healthy}}}}", "in a circle: a, b"},
	} {
		if _, err := cluster.Read(write(t, c.text), "/folder", none); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.text, err, c.want)
		}
	}
	if _, err := cluster.Read(filepath.Join(t.TempDir(), "none"), "/folder", none); err == nil {
		t.Error("a missing file was read")
	}
}

func TestReadReplacesVariables(t *testing.T) {
	path := write(t, `services: {b: {image: "nats:2", environment: {A: "${A}", B: "${B:-two}", C: "$$x ${A:-three}"}, volumes: ["./conf:/etc/x:ro", "b:/data"]}, a: {image: scrip, depends_on: {b: {condition: service_healthy}}}}`)
	services, err := cluster.Read(path, "/folder", func(name string) (string, bool) { return "one", name == "A" })
	if err != nil {
		t.Fatal(err)
	}
	if len(services) != 2 || services[0].Name != "b" || services[1].Name != "a" {
		t.Fatalf("%+v, want b before a", services)
	}
	b := services[0]
	for name, want := range map[string]string{"A": "one", "B": "two", "C": "$x one"} {
		if b.Environment[name] != want {
			t.Errorf("%s is %q, want %q", name, b.Environment[name], want)
		}
	}
	if b.Kind != cluster.NATS || b.Mounts["/data"] != "/folder/b" || b.Mounts["/etc/x"] != filepath.Join(filepath.Dir(path), "conf") {
		t.Errorf("%+v", b)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("services: {a: {image: nats, environment: {X: '${A:-b} $$'}}}")
	f.Add("services: {a: {image: scrip, volumes: ['a:/b'], depends_on: {a: {condition: service_healthy}}}}")
	f.Fuzz(func(t *testing.T, text string) {
		services, err := cluster.Read(write(t, text), "/folder", none)
		for _, s := range services {
			if err != nil || s.Name == "" && s.Kind == "" {
				t.Errorf("%+v, %v", s, err)
			}
		}
	})
}
