package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// printed is a command of a document with the answer that is printed for it.
type printed struct {
	command string
	answer  []string
}

// documents hold the commands that are typed, in this order, in one directory beside one server.
var documents = []string{"README.md", "streams/PRODUCERS.md", "projections/ANALYSTS.md", "cmd/RUNBOOK.md"}

// notTyped are commands, by their first words, that the test does not type as printed, and why.
var notTyped = map[string]string{
	"bin/scrip demo": "TestDemo runs it",
	"nats request ":  "the nats CLI may not be installed: the same request is sent through nats.go",
	"printf '%s":     "likewise; tests of the service and the SDK send several lines",
	"nats sub ":      "the nats CLI may not be installed, and it goes on until it is stopped",
	"bin/pushsender": "it goes on until it is stopped and needs a web server; cmd/pushsender has tests of its own",
	"psql":           "its statements are typed one by one",
}

// endless are commands that go on until they are stopped: they are typed without what makes them so.
const endless = " --follow"

// consoles returns the commands in the ```console blocks of a document.
func consoles(t *testing.T, document string) (list []printed) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("../..", document))
	streamtest.Must(t, err)
	inside := false
	for line := range strings.Lines(string(raw)) {
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

// reader types what the documents print, with the codes that it was given in place of the printed ones.
type reader struct {
	t     *testing.T
	dir   string
	evals []string
	codes map[string]string
}

// real is a command with them, also where a code is typed as people do.
func (r *reader) real(command string) string {
	typed := func(code string) string {
		return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(code, "SUMMER-"), "-", " "))
	}
	for printed, given := range r.codes {
		command = strings.NewReplacer(printed, given, typed(printed), typed(given)).Replace(command)
	}
	return command
}

func (r *reader) shell(command string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "sh", "-c", strings.Join(append(r.evals, r.real(command)), "\n"))
	cmd.Dir = r.dir
	out, _ := cmd.CombinedOutput() // the documents show exit codes where they matter
	return string(out)
}

// TestREADME types every command of the documents, but for those that it lists with a reason, and compares the answers
// where they are printed.
func TestREADME(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("psql"); err != nil {
		t.Skip("there is no psql on this machine")
	}
	dir := projtest.Dir(t)
	streamtest.Must(t, errors.Join(os.Mkdir(filepath.Join(dir, "bin"), 0o755), os.Symlink(e2e.Binary(), filepath.Join(dir, "bin", "scrip"))))
	serve(t, filepath.Join(dir, "data"))
	r := &reader{t: t, dir: dir, codes: map[string]string{}}
	typed, requests := 0, 0
	for _, document := range documents {
		for _, p := range consoles(t, document) {
			why := ""
			for start, because := range notTyped {
				if strings.HasPrefix(p.command, start) {
					why = because
				}
			}
			switch {
			case strings.HasPrefix(p.command, "eval "):
				r.evals = append(r.evals, p.command)
			case p.command == "psql":
				r.psql(p.answer)
			case strings.HasPrefix(p.command, "nats request "):
				r.request(p)
				requests++
			case why != "":
				t.Logf("%s: not typed: %s: %s", document, p.command, why)
			default:
				r.command(p)
				typed++
			}
		}
	}
	if requests < 2 || typed < 10 {
		t.Errorf("%d requests and %d commands are printed", requests, typed)
	}
}

// request sends the request that the nats CLI would send, with what `scrip env` gave to the shell.
func (r *reader) request(p printed) {
	r.t.Helper()
	url := strings.TrimSpace(r.shell(`echo "$NATS_URL"`))
	nc, err := nats.Connect(url)
	if err != nil {
		r.t.Fatalf("nats.Connect with %q: %v", url, err)
	}
	defer nc.Close()
	subject, data, _ := strings.Cut(strings.TrimPrefix(r.real(p.command), "nats request "), " ")
	msg, err := nc.Request(subject, []byte(strings.Trim(data, "'")), 2*time.Minute)
	if err != nil {
		r.t.Fatalf("%s: %v", p.command, err)
	}
	if len(p.answer) > 0 {
		r.compare(p, string(msg.Data))
	}
}

// command compares the first line of an answer, and all of it in shape unless the document cuts it short.
func (r *reader) command(p printed) {
	r.t.Helper()
	if len(p.answer) == 0 { // then it must succeed
		got := r.shell(strings.Replace(p.command, endless, "", 1) + "\necho \"exit $?\"")
		if !strings.HasSuffix(strings.TrimSpace(got), "exit 0") {
			r.t.Errorf("$ %s\nanswers\n%s", p.command, got)
		}
		return
	}
	r.compare(p, r.shell(p.command))
}

// compare compares an answer with the printed one, and notes which code came for which printed one.
func (r *reader) compare(p printed, got string) {
	r.t.Helper()
	want, have := printedCode.FindAllString(strings.Join(p.answer, "\n"), -1), printedCode.FindAllString(got, -1)
	for i := range min(len(want), len(have)) {
		r.codes[want[i]] = have[i]
	}
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

var changing = []*regexp.Regexp{printedCode, regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)}

// shape is text without what differs from run to run.
func shape(text string) string {
	for _, c := range changing {
		text = c.ReplaceAllString(text, "*")
	}
	return strings.Join(strings.Fields(text), " ")
}

// psql types the printed statements. The tables lag a moment, and something expires "ten seconds later".
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
		streamtest.Eventually(r.t, fmt.Sprintf("answer to %s as printed:\n%s\n", statement, strings.Join(want, "\n")), func() bool {
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
