package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/projections/rebuild"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// onServer is part of the help of commands that start a job.
const onServer = `A server does it: the command shows its progress until it ends. Ctrl-C ends the command only, and the job goes on: scrip job
show ID shows it, and scrip job stop ID ends it. A second one at the same time is refused. With the key of an operator it is
the same as with the credentials of the servers.`

// jobCommand shows and stops jobs.
func (m *Main) jobCommand() *cobra.Command {
	show := m.query(&cobra.Command{Use: "show ID", Short: "Show a job: its progress, or its result", Args: cli.Args("ID")},
		func(ctx context.Context, s *session, args []string) error {
			var job ops.Job
			if err := s.ask(ctx, "job.show", fields{"id": args[0]}, &job); err != nil {
				return err
			}
			return m.printJob(&job)
		})
	list := command(m, action[ops.Page[ops.Job]]{use: "list", name: "job.list", short: "List the last job of each kind, newest first", print: func(all ops.Page[ops.Job]) error {
		var rows [][]string
		for i := range all.Items {
			j := &all.Items[i]
			rows = append(rows, []string{j.ID, j.Action, string(j.State), orZero(j.Started), plain(j.By, 60), orText(j.Server, "-"), plain(orText(j.Error, progressText(j)), 120)})
		}
		return m.table(all.Next, "JOB ACTION STATE STARTED BY SERVER ABOUT", rows)
	}})
	stop := command(m, action[ops.Job]{use: "stop ID", name: "job.stop", args: []string{"id"}, short: "Stop a job",
		long: `Stop a job, at whichever server it runs. The command does not wait: within seconds the job has ended as stopped, or in
another way before. Who may start a job may stop it. A job that has ended stays as it is.

A change of many coupons ends between two batches of 1,000: its result has what it did, which stays. While the lane is away
that takes up to 30 seconds, and the error names the coupons whose outcome is not known. The same command again is another
job, which finds those coupons as so already. A backup leaves no files. A rebuild leaves the tables in use as they
are; filled new tables are kept for the next one. What a verification has repaired stays.`,
		example: "  scrip job list\n  scrip job stop coupons-abcdefghij-k2m9xqa4f7",
		print: func(j ops.Job) error {
			_, err := fmt.Fprintln(m.Out, stateText(&j))
			return err
		}})
	return cli.Group("job", "Show or stop rebuilds, verifications, backups and changes of many coupons, which servers do", show, list, stop)
}

// progressText is how far a job is; "" = not known.
func progressText(j *ops.Job) string {
	p := j.Progress
	if p == nil {
		return ""
	}
	text := p.Phase
	switch {
	case p.Total > 0:
		text += fmt.Sprintf(" %d of %d", p.Done, p.Total)
	case p.Done > 0:
		text += fmt.Sprintf(" %d", p.Done)
	}
	return strings.TrimSpace(text + " " + p.Note)
}

// stateText is the state of a job on one line.
func stateText(j *ops.Job) string {
	text := fmt.Sprintf("job %s of %s is %s", j.ID, j.By, j.State)
	if !j.Ended() {
		text += " since " + orZero(j.Started)
	}
	if far := progressText(j); far != "" {
		text += ": " + far
	}
	switch {
	case j.Error != "":
		text += ": " + j.Error
	case j.StoppedBy != "" && !j.Ended():
		text += "; stop requested by " + j.StoppedBy
	}
	return cli.Line(text)
}

// run starts a job, and shows it until it ends.
func (m *Main) run(cmd *cobra.Command, name string, request fields) error {
	s, err := m.connect()
	if err != nil {
		return err
	}
	defer s.close()
	ctx := cmd.Context()
	var job ops.Job
	if err := s.ask(ctx, name, request, &job); err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted: the job may have been started; see scrip job list")
		}
		return m.refusedOr(err)
	}
	show := &jobProgress{m: m}
	defer show.end()
	for missed := 0; !job.Ended(); {
		select {
		case <-ctx.Done():
			show.end()
			return fmt.Errorf("job %[1]s goes on; see scrip job show %[1]s, or end it: scrip job stop %[1]s", job.ID)
		case <-time.After(jobPoll):
		}
		next := ops.Job{}
		if err := s.ask(ctx, "job.show", fields{"id": job.ID}, &next); err != nil {
			if missed++; missed > jobMissed && ctx.Err() == nil { // servers may have been restarted
				return fmt.Errorf("job %s was started, and cannot be shown: %w; see scrip job show %s", job.ID, err, job.ID)
			}
			continue
		}
		job, missed = next, 0
		show.update(&job)
	}
	show.end()
	return m.printJob(&job)
}

const (
	// jobPoll is the pause between two looks at a job.
	jobPoll = 300 * time.Millisecond
	// jobMissed is how many looks in a row may fail.
	jobMissed = 20
)

// printJob prints the result of a job that has ended, or how far it is.
func (m *Main) printJob(j *ops.Job) error {
	hasResult := len(j.Result) > 0 && string(j.Result) != "null"
	switch {
	case !j.Ended() && m.global.output == outputJSON:
		return cli.JSON(m.Out, j)
	case !j.Ended():
		_, err := fmt.Fprintln(m.Out, stateText(j))
		return err
	case j.State == ops.JobRefused:
		return m.refuse("not_begun", "%s", orText(j.Error, "job "+j.ID+" was refused"))
	case hasResult:
		if err := m.printResult(j); err != nil {
			return err
		}
	}
	if j.State != ops.JobDone {
		return errors.New(orText(j.Error, fmt.Sprintf("job %s %s", j.ID, j.State)))
	}
	if !hasResult {
		return fmt.Errorf("job %s is done and has no result", j.ID)
	}
	if j.Kind != ops.VerifyJob {
		return nil
	}
	var verified ops.VerifyTables
	var report rebuild.Report
	if err := errors.Join(json.Unmarshal(j.Request, &verified), json.Unmarshal(j.Result, &report)); err != nil {
		return fmt.Errorf("the result of job %s has another form than expected: %w", j.ID, err)
	}
	if !verified.Repair && !report.Equal() {
		return cli.ErrDiffered
	}
	return nil
}

// printResult prints the result of a job.
func (m *Main) printResult(j *ops.Job) error {
	if m.global.output == outputJSON {
		_, err := fmt.Fprintf(m.Out, "%s\n", j.Result)
		return err
	}
	switch j.Action {
	case "coupons.void", "coupons.extend":
		return as(j, m.printChanged)
	case "verify.start":
		return as(j, m.printVerified)
	case "backup.start":
		return as(j, m.printTaken)
	case "rebuild.undo":
		return as(j, m.printUndone)
	case "rebuild.drop":
		return as(j, m.printDropped)
	}
	return as(j, m.printRebuild)
}

// as decodes a result and prints it.
func as[R any](j *ops.Job, print func(R) error) error {
	var r R
	if err := json.Unmarshal(j.Result, &r); err != nil {
		return fmt.Errorf("the result of job %s has another form than expected: %w", j.ID, err)
	}
	return print(r)
}

// jobProgress shows a bar with events a second and the time left on a terminal, else a line per phase.
type jobProgress struct {
	m      *Main
	phase  string
	bar    *bar
	since  time.Time
	events uint64 // when the phase started
}

func (p *jobProgress) update(j *ops.Job) {
	now := j.Progress
	if now == nil {
		return
	}
	if p.bar == nil || now.Phase != p.phase {
		p.end()
		p.phase, p.since, p.events = now.Phase, time.Now(), now.Events
		if !p.m.TerminalErr && now.Phase != "" {
			fmt.Fprintln(p.m.Err, now.Phase)
		}
		p.bar = p.m.bar(now.Phase, now.Total, j.Kind == ops.BackupJob)
	}
	text := now.Phase
	if now.Events > p.events {
		text += fmt.Sprintf(" %s events/s", grouped(uint64(float64(now.Events-p.events)/max(time.Since(p.since).Seconds(), 0.1))))
	}
	if now.Note != "" {
		text += ", " + now.Note
	}
	done := now.Done
	if now.Total > 0 { // else it is not known
		done = min(done, now.Total)
	}
	p.bar.set(text, done, now.Total)
}

func (p *jobProgress) end() {
	if p.bar != nil {
		p.bar.clear()
	}
	p.bar, p.phase = nil, ""
}
