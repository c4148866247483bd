package arch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// No engine runs these files in tests; what can be checked are the facts that must not get lost in an edit.
func TestImageFacts(t *testing.T) {
	for file, facts := range map[string][]string{
		"docker/Dockerfile": {
			"USER 10001:10001",     // not root
			"VOLUME /data",         // the log outlives the container
			"ENV SCRIP_DATA=/data", // … because it is written there
			"HEALTHCHECK ",         // an orchestrator knows when to route
			"CGO_ENABLED=0",        // runs on any base
			"apt-get install -y --no-install-recommends postgresql-15", // serve without flags needs it
			`CMD ["serve"]`,
			"FROM debian:12-slim",
		},
		"docker/compose.yaml": {
			`user: "10001:10001"`,
			"- data:/data",
			"cap_drop: [ALL]",
			"read_only: true",
			"SCRIP_CREDENTIALS: ${SCRIP_CREDENTIALS:?", // nobody starts an open server by accident
			"- 127.0.0.1:4222:4222",
			"dockerfile: docker/Dockerfile",
		},
	} {
		raw, err := os.ReadFile(filepath.Join(root(t), file))
		if err != nil {
			t.Fatal(err)
		}
		for _, fact := range facts {
			if !strings.Contains(string(raw), fact) {
				t.Errorf("%s lacks %q", file, fact)
			}
		}
		if strings.Contains(string(raw), "--insecure") || strings.Contains(string(raw), "SCRIP_INSECURE") {
			t.Errorf("%s opens the server to everybody", file)
		}
	}
}

// What the Dockerfile copies exists, and what the ignore file lets through is what it copies.
func TestImageBuildsFromWhatIsThere(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root(t), "docker/Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	ignored, err := os.ReadFile(filepath.Join(root(t), "docker/Dockerfile.dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	copied := 0
	for line := range strings.Lines(string(raw)) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] != "COPY" || strings.HasPrefix(words[1], "--") {
			continue
		}
		for _, source := range words[1 : len(words)-1] {
			copied++
			if _, err := os.Stat(filepath.Join(root(t), source)); err != nil {
				t.Errorf("the Dockerfile copies %s: %v", source, err)
			}
			if !strings.Contains(string(ignored), "\n!"+source+"\n") {
				t.Errorf("Dockerfile.dockerignore keeps %s away", source)
			}
		}
	}
	if copied == 0 {
		t.Error("the Dockerfile copies nothing")
	}
}
