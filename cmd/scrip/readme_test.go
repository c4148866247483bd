package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// printed is a command of the README with what it is printed to answer.
type printed struct {
	command string
	answer  []string
}

// consoles returns the commands in the ```console blocks between two headings of the README.
func consoles(t *testing.T, from, to string) (list []printed) {
	t.Helper()
	raw, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(raw), from)
	text, _, ended := strings.Cut(text, to)
	if !found || !ended {
		t.Fatalf("the README has no part from %q to %q", from, to)
	}
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		command, is := strings.CutPrefix(line, "$ ")
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
		case !inside:
		case is:
			list = append(list, printed{command: command})
		case len(list) > 0:
			last := &list[len(list)-1]
			last.answer = append(last.answer, line)
		}
	}
	return list
}

var printedCode = regexp.MustCompile(`\b(SUMMER-)?[A-Z2-9]{4}-[A-Z2-9]{4}-[A-Z2-9]{4}\b`)

// reader is somebody who types what the README prints, with the codes that come instead of the printed ones.
type reader struct {
	t     *testing.T
	dir   string
	evals []string
	codes map[string]string
}

func (r *reader) shell(command string) string {
	r.t.Helper()
	for printed, real := range r.codes {
		command = strings.ReplaceAll(command, printed, real)
		short := func(code string) string {
			return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(code, "SUMMER-"), "-", " "))
		}
		command = strings.ReplaceAll(command, short(printed), short(real))
	}
	cmd := exec.CommandContext(r.t.Context(), "sh", "-c", strings.Join(append(r.evals, command), "\n"))
	cmd.Dir = r.dir
	out, _ := cmd.CombinedOutput() // the README shows exit codes where they matter
	return string(out)
}

// TestREADME types the commands of the first minutes, and those of plain NATS clients, and compares the answers.
func TestREADME(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("psql"); err != nil {
		t.Skip("there is no psql on this machine")
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := dataDir(t)
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, filepath.Join(dir, "bin", "scrip")); err != nil {
		t.Fatal(err)
	}
	serve(t, filepath.Join(dir, "data"))
	r := &reader{t: t, dir: dir, codes: map[string]string{}}
	for _, p := range consoles(t, "## Five minutes", "## Is it for me?") {
		switch {
		case strings.HasPrefix(p.command, "eval "):
			r.evals = append(r.evals, p.command)
		case p.command == "psql":
			r.psql(p.answer)
		case strings.HasSuffix(p.command, "scrip demo"): // has a test of its own
		default:
			r.command(p)
		}
	}
	url := strings.TrimSpace(r.shell(`echo "$NATS_URL"`))
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatalf("nats.Connect with %q: %v", url, err)
	}
	defer nc.Close()
	asked := 0
	for _, p := range consoles(t, "## Producers", "### Sending the reminders") {
		request, is := strings.CutPrefix(p.command, "nats request ")
		if !is {
			continue
		}
		subject, data, _ := strings.Cut(request, " ")
		for printed, real := range r.codes {
			data = strings.ReplaceAll(data, printed, real)
		}
		msg, err := nc.Request(subject, []byte(strings.Trim(data, "'")), 30*time.Second)
		if err != nil {
			t.Fatalf("%s: %v", p.command, err)
		}
		asked++
		if len(p.answer) > 0 {
			r.learn(p.answer[0], string(msg.Data))
			if got, want := shape(string(msg.Data)), shape(p.answer[0]); got != want {
				t.Errorf("%s\nanswers %s\nprinted %s", p.command, got, want)
			}
		}
	}
	if asked < 2 {
		t.Errorf("%d requests are printed", asked)
	}
}

// command compares the first line of an answer, and all of it in shape unless the README cuts it short.
func (r *reader) command(p printed) {
	r.t.Helper()
	got := r.shell(p.command)
	if len(p.answer) == 0 {
		return
	}
	r.learn(strings.Join(p.answer, "\n"), got)
	lines := strings.Split(strings.TrimSpace(got), "\n")
	for i, want := range p.answer {
		if strings.Contains(want, "…") {
			return
		}
		if i >= len(lines) || shape(lines[i]) != shape(want) {
			r.t.Fatalf("$ %s\nanswers\n%s\nline %d is printed as\n%s", p.command, got, i+1, want)
		}
	}
	if len(lines) > len(p.answer) {
		r.t.Errorf("$ %s\nanswers %d lines, %d are printed:\n%s", p.command, len(lines), len(p.answer), got)
	}
}

// learn notes which code came for which printed one.
func (r *reader) learn(printed, got string) {
	want, have := printedCode.FindAllString(printed, -1), printedCode.FindAllString(got, -1)
	for i := range min(len(want), len(have)) {
		r.codes[want[i]] = have[i]
	}
}

var changing = []*regexp.Regexp{printedCode, regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)}

// shape is text without what differs from run to run.
func shape(text string) string {
	for _, c := range changing {
		text = c.ReplaceAllString(text, "*")
	}
	return strings.Join(strings.Fields(text), " ")
}

// psql types the printed statements. The tables are a moment behind, and something expires "ten seconds later".
func (r *reader) psql(lines []string) {
	r.t.Helper()
	for i := 0; i < len(lines); {
		statement, is := strings.CutPrefix(lines[i], "scrip=> ")
		i++
		if !is {
			r.t.Fatalf("no statement: %s", lines[i-1])
		}
		var want []string
		for ; i < len(lines) && !strings.HasPrefix(lines[i], "scrip=> "); i++ {
			want = append(want, shape(lines[i]))
		}
		var got string
		wait(r.t, fmt.Sprintf("answer to %s as printed:\n%s\n", statement, strings.Join(want, "\n")), time.Minute, func() bool {
			got = r.shell("psql -X -P footer=off <<'.'\n" + statement + "\n.")
			var have []string
			for line := range strings.Lines(strings.TrimSpace(got)) {
				have = append(have, shape(line))
			}
			// Rules between head and rows are as wide as what is in the column.
			return len(have) == len(want) && have[0] == want[0] && strings.Join(have[2:], "\n") == strings.Join(want[2:], "\n")
		})
	}
}
