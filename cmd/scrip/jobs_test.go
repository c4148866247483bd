package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// jobActions are the actions that start jobs, with the kinds of these.
var jobActions = map[string]string{
	"rebuild.start": ops.RebuildJob, "rebuild.undo": ops.RebuildJob, "rebuild.drop": ops.RebuildJob, "verify.start": ops.VerifyJob,
	"backup.start": ops.BackupJob, "coupons.void": ops.CouponsJob, "coupons.extend": ops.CouponsJob,
}

// TestEveryStateOfAJob: the command line shows a job of each state, with each progress and each result that it may have or lack, on a
// terminal and elsewhere, as text and as JSON. What failed, was refused or stopped is an error with its reason and its exit code. What
// is not known is not shown as 0.
func TestEveryStateOfAJob(t *testing.T) {
	progress := map[string]*ops.JobProgress{
		"none": nil, "empty": {}, "no phase": {Done: 3, Total: 10}, "no total": {Phase: "loading", Done: 3}, "no number": {Phase: "loading"},
		"whole": {Phase: "loading", Done: 3, Total: 10}, "beyond": {Phase: "loading", Done: 12, Total: 10, Events: 5, Note: "yielding"},
	}
	exits := map[ops.JobState]int{ops.JobFailed: cli.ExitFailed, ops.JobStopped: cli.ExitFailed, ops.JobRefused: cli.ExitRefused}
	shown := func(m *Main, j *ops.Job) (text string, exit int) {
		var out, stderr bytes.Buffer
		m.Out, m.Err = &out, &stderr
		show := &jobProgress{m: m}
		show.update(j)
		show.update(j)
		show.end()
		err := m.printJob(j)
		if err != nil {
			fmt.Fprintln(&stderr, err)
		}
		return out.String() + stderr.String(), cli.ExitCode(err)
	}
	check := func(j ops.Job, of, output string, terminal bool) {
		m := &Main{TerminalErr: terminal}
		m.global.output = output
		text, exit := shown(m, &j)
		is := fmt.Sprintf("%s %s, progress %s, result %q, %s, terminal %t", j.Action, j.State, of, j.Result, output, terminal)
		want := exits[j.State]
		if j.State == ops.JobDone && string(j.Result) != "{}" {
			want = cli.ExitFailed // what was done is not known
		}
		asText := !j.Ended() && output == outputText
		switch {
		case exit != want:
			t.Errorf("%s: exit code %d, want %d: %q", is, exit, want, text)
		case j.Error != "" && !strings.Contains(text, j.Error):
			t.Errorf("%s: no reason in %q", is, text)
		case strings.Contains(text, "of 0"), asText && (of == "none" || of == "empty" || of == "no number") && strings.Contains(text, " 0"):
			t.Errorf("%s: what is not known is shown as 0: %q", is, text)
		case asText && !strings.Contains(text, "is "+string(j.State)):
			t.Errorf("%s: no state in %q", is, text)
		}
	}
	for action, kind := range jobActions {
		for _, state := range ops.JobStates {
			for of, p := range progress {
				for _, result := range []string{"", "null", "{}"} {
					j := ops.Job{ID: kind + "-x", Kind: kind, Action: action, State: state, By: "ann", Progress: p, Request: []byte("{}"), Result: json.RawMessage(result)}
					if exits[state] != cli.ExitDone {
						j.Error = "the reason"
					}
					check(j, of, outputText, false)
					check(j, of, outputText, true)
					check(j, of, outputJSON, false)
				}
			}
		}
	}
	m := &Main{}
	if text, exit := shown(m, &ops.Job{ID: "verify-x", State: ops.JobFailed}); text != "job verify-x failed\n" || exit != cli.ExitFailed {
		t.Errorf("one that failed without a reason: exit code %d, %q", exit, text)
	}
}

// TestWhatTablesLacked is shown with the result of a change of coupons: unknown is not 0.
func TestWhatTablesLacked(t *testing.T) {
	for behind, want := range map[string]string{"null": "unknown: ", "0": "", "12": "12 messages: "} {
		var out bytes.Buffer
		m := &Main{Out: &out}
		result := json.RawMessage(`{"matched":5,"done":5,"behind":` + behind + `}`)
		j := ops.Job{ID: "coupons-x", Kind: ops.CouponsJob, Action: "coupons.void", State: ops.JobDone, Result: result}
		err := m.printJob(&j)
		if text := out.String(); err != nil || !strings.Contains(text, want) || want == "" && strings.Contains(text, "behind") {
			t.Errorf("behind %s: %q, %v", behind, text, err)
		}
	}
}
