package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/alert"
	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/doctor"
	"github.com/seed-4a2410e3/scrip/cmd/internal/sample"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
	"github.com/seed-4a2410e3/scrip/projections/readmodel"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/scheduler"
)

func (m *Main) overviewCommand() *cobra.Command {
	return command(m, action[sample.Overview]{
		use: "overview", name: "overview.show", short: "Show rates, the oldest due work, the lag of tables, and alerts that would fire",
		print: func(o sample.Overview) error {
			rows := [][2]string{
				{"claims", fmt.Sprintf("%.1f a second", o.Claims)}, {"redemptions", fmt.Sprintf("%.1f a second", o.Redemptions)},
				{"refusals", fmt.Sprintf("%.1f a second", o.Refusals)}, {"oldest due", fmt.Sprintf("%.1f s", o.OldestDue)},
				{"tables", tablesLate(o.Lag)}, {"error", o.Error},
			}
			if err := cli.Fields(m.Out, filled(rows)); err != nil {
				return err
			}
			return listed[alert.Alert](m, "name severity since next")(ops.Page[alert.Alert]{Items: o.Alerts})
		},
	})
}

// tablesLate is how late the tables are, below zero = not known.
func tablesLate(seconds float64) string {
	if seconds < 0 {
		return "unknown: no server fills them"
	}
	return fmt.Sprintf("%.1f s late", seconds)
}

func (m *Main) findCommand() *cobra.Command {
	return cli.Group("command", "Find commands", command(m, action[ops.FoundCommand]{
		use: "show ID", name: "command.show", args: []string{"id"}, short: "Find what a command did",
		long: `Find what a command did, by its events. The log is searched for 200 ms, from its newest messages on, until some are found. What was not
reached is unknown: the answer has how far each lane was searched, and what --after goes on with. A command that was refused, or
repeated, has no event.`,
		print: func(f ops.FoundCommand) error {
			if err := listed[ops.CommandEvent](m, "at what campaign n by lane sequence line")(ops.Page[ops.CommandEvent]{Items: f.Events}); err != nil {
				return err
			}
			return listed[ops.SearchedLane](m, "lane messages since all")(ops.Page[ops.SearchedLane]{Items: f.Searched, Next: f.Next})
		},
	}))
}

func (m *Main) logCommand() *cobra.Command {
	return command(m, action[ops.LogShown]{
		use: "log", name: "log.show", short: "Show the streams of the log: sizes, replicas, foreign messages",
		print: func(l ops.LogShown) error {
			if err := listed[ops.LogStream](m, "name messages bytes first_sequence last_sequence replicas leader")(ops.Page[ops.LogStream]{Items: l.Streams}); err != nil {
				return err
			}
			return listed[ops.ForeignMessage](m, "lane sequence at subject bytes reason")(ops.Page[ops.ForeignMessage]{Items: l.Foreign})
		},
	})
}

func (m *Main) senderCommand() *cobra.Command {
	return cli.Group("sender", "Show senders of reminders, and what they gave up",
		command(m, action[ops.Page[push.Position]]{use: "list", name: "sender.list", short: "List senders, and how far they are on each lane",
			print: listed[push.Position](m, "name lane delivered dead failed opted_out waiting oldest saved")}),
		command(m, action[ops.Page[ops.SenderLetter]]{use: "deadletters NAME", name: "sender.deadletters", args: []string{"sender"}, short: "List reminders that a sender gave up, oldest first",
			long: "List reminders that a sender gave up, oldest first. pushsender retry delivers them again.", print: listed[ops.SenderLetter](m, "id at lane sequence reminders tries error")}),
		command(m, action[ops.LettersDone]{use: "discard NAME", name: "sender.discard", args: []string{"sender"}, short: "Remove reminders that a sender gave up",
			print: func(done ops.LettersDone) error {
				_, err := fmt.Fprintf(m.Out, "discarded %d\n", done.Discarded)
				return err
			}}))
}

func (m *Main) statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "Show the status of servers and lanes", Args: cli.NoArgs,
		Long: `Show the status of servers and lanes: streams, owners, undecided commands, the lag of the read tables, open dead letters.
It also shows the last good backup, and its age. For a lane that has stopped, the output has the reason and the next step. Every server of the log is queried, on all
machines.

OLDEST-DUE is how long the oldest due expiry or reminder has waited: the number to watch. WAITING counts customers with due
reminders that are not fired yet.

The exit code is 0 if all lanes have an owner, all servers are ready and no stream of the log is in danger by its settings,
else 1.`,
	}
	return m.query(cmd, func(ctx context.Context, s *session, _ []string) error {
		st := &status.Status{}
		err := s.ask(ctx, "status.show", fields{}, st)
		if err != nil {
			return err
		}
		st.HTTP = natsx.WithoutUser(s.server.HTTPURL)
		if m.global.output == outputJSON {
			err = cli.JSON(m.Out, st)
		} else {
			err = m.printStatus(st)
		}
		if err == nil && !st.Ready {
			err = errors.New("not ready")
		}
		return err
	})
}

// openLetters describes the open dead letters.
func openLetters(st *status.Status) string {
	c := st.DeadLetters
	switch {
	case c == nil:
		return "unknown: " + st.NoDeadLetters
	case c.More:
		return fmt.Sprintf("more than %d are open; see scrip deadletter list", readmodel.MostCounted)
	case c.Commands+c.Events > 0:
		return fmt.Sprintf("%d commands, %d events; see scrip deadletter list", c.Commands, c.Events)
	}
	return "none"
}

// heldBack describes what waits for a person, and what did.
func heldBack(st *status.Status) string {
	h := st.HeldBack
	if h == nil {
		return ""
	}
	return fmt.Sprintf("%d now; %d messages, %d merged into them, %d withheld for quiet hours, %d by the cap", h.Held, h.Sent, h.Merged, h.Quiet, h.Cap)
}

// lastBackup describes the last good backup.
func lastBackup(st *status.Status) string {
	b := st.Backup
	switch {
	case st.NoBackup != "":
		return "unknown: " + st.NoBackup
	case b == nil:
		return "never; see scrip backup"
	}
	age := time.Duration(b.Age) * time.Second
	text := fmt.Sprintf("%s ago, at %s, %s at %s, %.1f MB", age, b.Begun.Format(time.RFC3339), b.Dir, b.Server, float64(b.Bytes)/1e6)
	if b.Restored {
		text += "; the log was restored from it"
	}
	return text
}

// leftOnDisk describes the disk with the least space.
func leftOnDisk(st *status.Status) string {
	switch {
	case st.DiskLeft == 0:
		return ""
	case st.DiskFull == 0:
		return fmt.Sprintf("%.1f GB left", float64(st.DiskLeft)/1e9)
	}
	return fmt.Sprintf("%.1f GB left, full in about %.1f hours at the rate of the last minutes", float64(st.DiskLeft)/1e9, st.DiskFull)
}

func (m *Main) printStatus(st *status.Status) error {
	head := "ready"
	if !st.Ready {
		head = "NOT READY"
	}
	sync := st.Sync
	if sync == natsd.SyncInterval {
		sync += ": may lose the last seconds on power loss"
	}
	rows := [][2]string{{head, ""}, {"log", fmt.Sprintf("%s, %d lanes, since %s", st.Log, st.Lanes, st.Created.Format(time.RFC3339))}}
	rows = filled(append(rows, [][2]string{{"sync", sync}, {"nats", st.NATS}, {"http", st.HTTP}, {"servers", strconv.Itoa(len(st.Servers))},
		{"disk", leftOnDisk(st)}, {"backup", lastBackup(st)}, {"held back", heldBack(st)}, {"dead letters", openLetters(st)}, {"note", st.Note}}...))
	for _, name := range slices.Sorted(maps.Keys(st.Checks)) {
		if c := st.Checks[name]; !c.OK {
			rows = append(rows, [2]string{name, "NOT OK " + problem(c)})
		}
	}
	if err := cli.Fields(m.Out, rows); err != nil {
		return err
	}
	var lanes [][]string
	for _, l := range st.PerLane {
		state := l.State
		if state == "" {
			state = "-"
			if l.Holder == "" {
				state = "no owner"
			}
		}
		lanes = append(lanes, []string{strconv.Itoa(l.Lane), state, orText(l.Holder, "-"), fmt.Sprint(l.Events), fmt.Sprint(l.Commands), fmt.Sprint(l.Undecided),
			orText(l.Tables, "-"), behind(l), lateness(l), l.Error})
	}
	if err := cli.Table(m.Out, "LANE STATE HOLDER EVENTS COMMANDS UNDECIDED TABLES BEHIND LATE PROBLEM", lanes); err != nil {
		return err
	}
	var servers [][]string
	for _, s := range st.PerServer {
		how := "does not answer"
		switch {
		case s.Ready:
			how = "ready"
		case s.Answers:
			how = "not ready"
		}
		servers = append(servers, []string{s.Server, how, orText(strings.Join(s.Roles, ","), "-"), orText(s.Settings, "-")})
	}
	if err := cli.Table(m.Out, "SERVER STATE ROLES SETTINGS", servers); err != nil {
		return err
	}
	var limits [][]string
	for _, s := range st.PerServer {
		for _, l := range s.Limits {
			limits = append(limits, []string{s.Server, l.What, fmt.Sprint(l.Used), fmt.Sprint(l.Limit), fmt.Sprint(l.Refused)})
		}
	}
	if len(limits) > 0 {
		if err := cli.Table(m.Out, "SERVER LIMIT USED OF REFUSED", limits); err != nil {
			return err
		}
	}
	if due := backlogs(st); len(due) > 0 {
		return cli.Table(m.Out, backlogHead, due)
	}
	return nil
}

// problem is the error text of a failed check, if it has one.
func problem(c status.Result) string {
	var detail struct{ Error string }
	if c.Detailed(&detail) && detail.Error != "" {
		return detail.Error
	}
	return "see below, or /readyz"
}

// backlogs are the rows of lanes and priorities with work that is due.
func backlogs(st *status.Status) (rows [][]string) {
	for _, l := range st.PerLane {
		if l.Backlog == nil {
			continue
		}
		for _, p := range []struct {
			name string
			of   scheduler.PriorityBacklog
		}{{"high", l.Backlog.High}, {"normal", l.Backlog.Normal}, {"low", l.Backlog.Low}} {
			row := []string{fmt.Sprint(l.Lane), p.name, p.of.OldestDue.Round(time.Millisecond).String(), fmt.Sprint(p.of.Waiting)}
			if p.of.OldestDue > 0 || p.of.Waiting > 0 {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// backlogHead is their heading.
const backlogHead = "LANE PRIORITY OLDEST-DUE WAITING"

// errUnwell ends a doctor whose findings have been printed.
var errUnwell = errors.New("something fails; see the column FIX")

// doctorCommand examines the machine and the servers that scrip uses.
func (m *Main) doctorCommand() *cobra.Command {
	var o doctor.Options
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check the machine, NATS and PostgreSQL, and name what to mend", Args: cli.NoArgs,
		Long: `Check the machine, NATS and PostgreSQL: ports, rights, disk latency, space, memory, open files, versions, settings,
clocks. Give the flags of "scrip serve", before a server starts or while it runs. Each finding is ok, warn or fail, with
what to do. The exit code is 1 if one of them is fail.

It changes nothing. --as logs in to NATS as a user, looks its key up, and lists what it may do. NATS shows whether it syncs its files only on its monitoring port, which docker/nats/cluster.conf opens to its own machine: name
it with --monitor.`,
		Example: `  scrip doctor
  scrip doctor --nats nats://USER:PASSWORD@nats-1:4222 --postgres postgres://… --monitor http://127.0.0.1:8222
  scrip doctor --as sk_producer_01h8z3qk…
  scrip doctor --as nats://SHOP:PASSWORD@nats-1:4222 -o json`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			o.Data, o.NATS = m.global.data, m.global.nats
			if o.NATSOptions, err = m.natsFlags.Options(); err != nil {
				return err
			}
			findings, err := doctor.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			if err := m.printFindings(findings); err != nil {
				return err
			}
			if doctor.Worst(findings) == doctor.Fail {
				return errUnwell
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Postgres, "postgres", "", "`URL` of the database for the read tables; absent = a private PostgreSQL")
	f.StringVar(&o.NATSListen, "nats-listen", natsd.DefaultListen, "`HOST:PORT` of the embedded NATS server")
	f.StringVar(&o.HTTPListen, "http-listen", server.DefaultHTTPListen, "`HOST:PORT` of HTTP")
	f.StringVar(&o.Monitor, "monitor", "", "`URL`s of NATS servers' monitoring ports, separated by commas")
	f.StringVar(&o.As, "as", "", "`KEY` of a user to log in as, or a NATS URL with credentials")
	cli.WithVariable(f, "postgres", "nats-listen", "http-listen")
	idFlag(cmd, false)
	return cmd
}

func (m *Main) printFindings(findings []doctor.Finding) error {
	if m.global.output == outputJSON {
		for _, f := range findings {
			if err := cli.JSON(m.Out, f); err != nil {
				return err
			}
		}
		return nil
	}
	var rows [][]string
	for _, f := range findings {
		rows = append(rows, []string{string(f.Level), f.Check, f.What, f.Fix})
	}
	if err := cli.Table(m.Out, "LEVEL CHECK FOUND FIX", rows); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// behind is how many messages the tables of a lane lack, "-" = not known.
func behind(l status.Lane) string {
	if l.Behind == nil {
		return "-"
	}
	return fmt.Sprint(*l.Behind)
}

// lateness is how late the tables of a lane are, and when they will be current; "-" = not known.
func lateness(l status.Lane) string {
	switch {
	case l.Behind == nil && l.LagSeconds == 0:
		return "-"
	case l.Behind != nil && *l.Behind == 0:
		return "0 s"
	case l.Current < 0:
		return fmt.Sprintf("%.0f s", l.LagSeconds)
	}
	return fmt.Sprintf("%.0f s, current again in about %.0f s", l.LagSeconds, l.Current)
}
