package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// stages are the instructions of docker/Dockerfile by name, for each image.
func stages(t *testing.T) (all []map[string][]string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root(t), "docker/Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?m)^ *#.*\n`).ReplaceAllString(string(raw), "")
	text = strings.ReplaceAll(text, "\\\n", "")
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "FROM" {
			all = append(all, map[string][]string{})
		}
		if name != "" {
			all[len(all)-1][name] = append(all[len(all)-1][name], strings.TrimSpace(rest))
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
		if from, _, _ := strings.Cut(s["FROM"][0], " "); !pinned.MatchString(from) {
			t.Errorf("%s is not named by tag and digest", from)
		}
	}
	// Without cgo it needs no libraries of the image that builds it. The user is named by number, as Kubernetes wants it for
	// runAsNonRoot, and has a name, which initdb looks up. In any other form than a list a shell would take the signals.
	uid, gid, _ := strings.Cut(strings.Join(image["USER"], ""), ":")
	if !regexp.MustCompile(`^[1-9][0-9]{3,}$`).MatchString(uid) || gid != uid {
		t.Errorf("it runs as %q", image["USER"])
	}
	data := strings.Join(image["VOLUME"], "")
	for _, want := range []struct {
		stage      map[string][]string
		name, text string
		only       bool
	}{
		{build, "RUN", "CGO_ENABLED=0 go build ", false},
		{build, "RUN", " -o /scrip ", false},
		{build, "RUN", " -trimpath ", false},
		{image, "RUN", "useradd --uid " + uid + " --user-group ", false},
		{image, "RUN", "install -d -o scrip -g scrip -m 0700 " + data, false},
		{image, "RUN", "apt-get install -y --no-install-recommends postgresql-15 ", false},
		{image, "COPY", "--from=build /scrip /usr/local/bin/scrip", true},
		{image, "ENV", "SCRIP_DATA=" + data, true},
		{image, "VOLUME", "/data", true},
		{image, "ENTRYPOINT", `["scrip"]`, true},
		{image, "CMD", `["serve"]`, true},
		{image, "HEALTHCHECK", `CMD ["scrip", "status"]`, false},
	} {
		given := strings.Join(want.stage[want.name], " && ")
		if want.only && given != want.text || !strings.Contains(given, want.text) {
			t.Errorf("%s is %q, want %q", want.name, given, want.text)
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
	for _, instruction := range stages(t)[0]["COPY"] {
		words := strings.Fields(instruction)
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
