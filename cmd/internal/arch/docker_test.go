package arch

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// stage is one image of a Dockerfile.
type stage struct {
	from string
	// last is what the last instruction of a name has.
	last map[string]string
	env  map[string]string
	// runs are the commands of RUN, and copies the words of COPY.
	runs   []string
	copies [][]string
}

// stages reads docker/Dockerfile: it knows the instructions that are there, and an unknown one fails.
func stages(t *testing.T) (all []*stage) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root(t), "docker/Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		part, more := strings.CutSuffix(line, "\\")
		if text += part; more {
			continue
		}
		name, rest, _ := strings.Cut(text, " ")
		text, rest = "", strings.TrimSpace(rest)
		if name == "FROM" {
			from, _, _ := strings.Cut(rest, " ")
			all = append(all, &stage{from: from, last: map[string]string{}, env: map[string]string{}})
		}
		s := all[len(all)-1]
		s.last[name] = rest
		switch name {
		case "FROM", "USER", "VOLUME", "WORKDIR", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "ENTRYPOINT", "CMD", "ARG":
		case "ENV":
			key, value, _ := strings.Cut(rest, "=")
			s.env[key] = value
		case "RUN":
			s.runs = append(s.runs, rest)
		case "COPY":
			s.copies = append(s.copies, strings.Fields(rest))
		default:
			t.Fatalf("the Dockerfile has %s, which this test does not know", name)
		}
	}
	return all
}

var pinned = regexp.MustCompile(`^[a-z/]+:[a-z0-9.-]+@sha256:[0-9a-f]{64}$`)

// TestTheImage: no engine builds it in tests; this is what the image has by its Dockerfile.
func TestTheImage(t *testing.T) {
	all := stages(t)
	if len(all) != 2 {
		t.Fatalf("%d stages, want one that builds and the image", len(all))
	}
	build, image := all[0], all[1]
	for _, s := range all {
		if !pinned.MatchString(s.from) {
			t.Errorf("%s is not named by tag and digest", s.from)
		}
	}
	if len(build.runs) != 2 || !strings.HasPrefix(build.runs[1], "CGO_ENABLED=0 go build ") {
		t.Errorf("built by %q, which may need the libraries of its image", build.runs)
	}
	if want := []string{"--from=build", "/scrip", "/usr/local/bin/scrip"}; len(image.copies) != 1 || !slices.Equal(image.copies[0], want) {
		t.Errorf("the image copies %q, want %q alone", image.copies, want)
	}
	for _, option := range []string{" -o /scrip ", " -trimpath "} {
		if !strings.Contains(build.runs[1], option) {
			t.Errorf("built without %q", option)
		}
	}
	// By number, as Kubernetes wants it for runAsNonRoot, and with a name, which initdb looks up.
	uid, gid, _ := strings.Cut(image.last["USER"], ":")
	if !regexp.MustCompile(`^[1-9][0-9]{3,}$`).MatchString(uid) || gid != uid {
		t.Errorf("it runs as %q", image.last["USER"])
	}
	install := strings.Join(image.runs, " && ")
	for _, part := range []string{"useradd --uid " + uid + " --user-group ", "install -d -o scrip -g scrip -m 0700 /data", "apt-get install -y --no-install-recommends postgresql-15 "} {
		if !strings.Contains(install, part) {
			t.Errorf("it is made without %q", part)
		}
	}
	if data := image.last["VOLUME"]; data == "" || !maps.Equal(image.env, map[string]string{"SCRIP_DATA": data}) {
		t.Errorf("the log outlives the container in %q, and the environment is %v", data, image.env)
	}
	_, check, _ := strings.Cut(image.last["HEALTHCHECK"], "CMD ")
	for name, given := range map[string]string{"HEALTHCHECK": check, "ENTRYPOINT": image.last["ENTRYPOINT"], "CMD": image.last["CMD"]} {
		var words []string // in any other form a shell would take the signals
		if err := json.Unmarshal([]byte(given), &words); err != nil {
			t.Errorf("%s: %q, %v", name, given, err)
		}
		if want := map[string][]string{"HEALTHCHECK": {"scrip", "status"}, "ENTRYPOINT": {"scrip"}, "CMD": {"serve"}}[name]; !slices.Equal(words, want) {
			t.Errorf("%s is %q, want %q", name, words, want)
		}
	}
}

// What the Dockerfile copies exists, and what the ignore file lets through is what it copies.
func TestImageBuildsFromWhatIsThere(t *testing.T) {
	ignored, err := os.ReadFile(filepath.Join(root(t), "docker/Dockerfile.dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	copied := 0
	for _, words := range stages(t)[0].copies {
		for _, source := range words[:len(words)-1] {
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
