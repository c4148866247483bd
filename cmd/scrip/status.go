package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/projections/deadletter"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/scheduler"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func (m *Main) statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "Show the status of servers and lanes", Args: cli.NoArgs,
		Long: `Show the status of servers and lanes: streams, owners, undecided commands, the lag of the read tables, open dead letters.
For a lane that has stopped, the output has the reason and the next step. Every server of the log is queried, on all
machines.

OLDEST-DUE is how long the oldest due expiry or reminder has waited: the number to watch. WAITING counts customers with due
reminders that are not fired yet. DUE-IN counts what becomes due soon: reminders + seconds in which coupons of a campaign
expire.

The exit code is 0 if all lanes have an owner and all servers are ready, else 1.`,
	}
	return m.queryRunE(cmd, func(ctx context.Context, s *session, _ []string) error {
		st, err := readStatus(ctx, s)
		if err != nil {
			return err
		}
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

// status is the output of `scrip status`.
type status struct {
	Ready   bool         `json:"ready"`
	Log     string       `json:"log"`
	Created time.Time    `json:"created"`
	Lanes   int          `json:"lanes"`
	Sync    string       `json:"sync,omitempty"`
	NATS    string       `json:"nats"`
	HTTP    string       `json:"http,omitempty"`
	Servers []string     `json:"servers"`
	PerLane []laneStatus `json:"lane"`
	// PerServer is each server's own report.
	PerServer []serverStatus           `json:"server"`
	Checks    map[string]server.Result `json:"checks,omitempty"`
	// DeadLetters are the open ones; nil if NoDeadLetters has the reason why they are unknown.
	DeadLetters   *deadletter.Counts `json:"dead_letters,omitempty"`
	NoDeadLetters string             `json:"dead_letters_unknown,omitempty"`
	// Note is why there are no checks.
	Note string `json:"note,omitempty"`
}

// laneStatus is one lane by the log and the leases, with the report of its owner.
type laneStatus struct {
	Lane      int    `json:"lane"`
	Holder    string `json:"holder,omitempty"`
	State     string `json:"state,omitempty"`
	Error     string `json:"error,omitempty"`
	Events    uint64 `json:"event_sequence"`
	Commands  uint64 `json:"command_sequence"`
	Undecided uint64 `json:"undecided_messages"`
	Tables    string `json:"tables,omitempty"`
	Behind    uint64 `json:"tables_behind"`
	Foreign   int    `json:"foreign_messages,omitempty"`
	// Backlog is its scheduler's due work, nil while unknown.
	Backlog *scheduler.Backlog `json:"backlog,omitempty"`
}

// readStatus collects the status from the log, the leases, the servers' reports and the read tables.
func readStatus(ctx context.Context, s *session) (*status, error) {
	js, log, err := s.log(ctx)
	if err != nil {
		return nil, err
	}
	st := &status{Ready: true, Log: log.UUID, Created: log.Created, Lanes: log.Lanes, Sync: s.server.Sync,
		NATS: s.nc.ConnectedUrlRedacted(), HTTP: withoutUser(s.server.HTTPURL)}
	holders, err := lease.Inspect(ctx, js, server.LeaseGroup, log.Lanes)
	if err != nil {
		return nil, err
	}
	st.Servers = holders.Servers
	for n := range log.Lanes {
		l, err := readLane(ctx, js, log, n)
		if err != nil {
			return nil, fmt.Errorf("lane %d: %w", n, err)
		}
		l.Holder = holders.Holders[n].Server
		st.PerLane = append(st.PerLane, l)
		st.Ready = st.Ready && l.Holder != ""
	}
	st.addServers(ctx, s.nc)
	st.countDeadLetters(ctx, s.server.PostgresURL)
	return st, nil
}

// readLane reads the ends of a lane's streams.
func readLane(ctx context.Context, js jetstream.JetStream, log topology.Log, n int) (laneStatus, error) {
	l := laneStatus{Lane: n}
	tail, err := eventlog.Events(js, n).In(log).Tail(ctx)
	if err != nil {
		return l, err
	}
	bounds, err := eventlog.Commands(js, n).Bounds(ctx)
	if err != nil {
		return l, err
	}
	covered := uint64(0)
	if tail.Message != nil {
		covered = tail.Message.Next() - 1
	}
	l.Events, l.Commands, l.Foreign = tail.Last, covered, len(tail.Foreign)
	if bounds.Last > covered {
		l.Undecided = bounds.Last - covered
	}
	return l, nil
}

// lettersWait is how long the read tables may take to count dead letters. Later the status is printed without them.
const lettersWait = 3 * time.Second

// countDeadLetters adds how many are open. They are in the read tables, which may be unavailable.
func (st *status) countDeadLetters(ctx context.Context, postgres string) {
	if postgres == "" {
		st.NoDeadLetters = "the URL of the read tables is unknown here"
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lettersWait)
	defer cancel()
	db, err := schema.Connect(ctx, postgres)
	if err != nil {
		st.NoDeadLetters = "the read tables are unavailable"
		return
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	counts, err := deadletter.New(db).Open(ctx)
	if err != nil {
		st.NoDeadLetters = err.Error()
		return
	}
	st.DeadLetters = &counts
}

// letters describes the open dead letters.
func (st *status) letters() string {
	c := st.DeadLetters
	switch {
	case c == nil:
		return "unknown: " + st.NoDeadLetters
	case c.More:
		return fmt.Sprintf("more than %d are open; see scrip deadletter list", deadletter.MostCounted)
	case c.Commands+c.Events > 0:
		return fmt.Sprintf("%d commands, %d events; see scrip deadletter list", c.Commands, c.Events)
	}
	return "none"
}

// withoutUser is a URL without its credentials.
func withoutUser(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	u.User = nil
	return u.String()
}

func getReady(ctx context.Context, at string) (server.Readiness, error) {
	var r server.Readiness
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/readyz", nil)
	if err != nil {
		return r, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	return r, json.NewDecoder(resp.Body).Decode(&r)
}

// detailed reads a check's detail.
func detailed(r server.Result, into any) bool {
	raw, err := json.Marshal(r.Detail)
	return err == nil && r.Detail != nil && json.Unmarshal(raw, into) == nil
}

func (m *Main) printStatus(st *status) error {
	head := "ready"
	if !st.Ready {
		head = "NOT READY"
	}
	sync := st.Sync
	if sync == natsd.SyncInterval {
		sync += ": may lose the last seconds on power loss"
	}
	rows := [][2]string{{head, ""}, {"log", fmt.Sprintf("%s, %d lanes, since %s", st.Log, st.Lanes, st.Created.Format(time.RFC3339))}}
	for _, r := range [][2]string{{"sync", sync}, {"nats", st.NATS}, {"http", st.HTTP}, {"servers", strconv.Itoa(len(st.Servers))},
		{"dead letters", st.letters()}, {"note", st.Note}} {
		if r[1] != "" {
			rows = append(rows, r)
		}
	}
	var names []string
	for name := range st.Checks {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
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
			orText(l.Tables, "-"), fmt.Sprint(l.Behind), l.Error})
	}
	if err := cli.Table(m.Out, "LANE STATE HOLDER EVENTS COMMANDS UNDECIDED TABLES BEHIND PROBLEM", lanes); err != nil {
		return err
	}
	var servers [][]string
	for _, s := range st.PerServer {
		var roles []string
		for _, r := range s.Roles {
			roles = append(roles, string(r))
		}
		how := "does not answer"
		switch {
		case s.Ready:
			how = "ready"
		case s.Answers:
			how = "not ready"
		}
		servers = append(servers, []string{s.Server, how, orText(strings.Join(roles, ","), "-"), orText(s.Settings, "-")})
	}
	if err := cli.Table(m.Out, "SERVER STATE ROLES SETTINGS", servers); err != nil {
		return err
	}
	if due := st.backlogs(); len(due) > 0 {
		return cli.Table(m.Out, backlogHead, due)
	}
	return nil
}

// problem is the error text of a failed check, if it has one.
func problem(c server.Result) string {
	var detail struct{ Error string }
	if detailed(c, &detail) && detail.Error != "" {
		return detail.Error
	}
	return "see below, or /readyz"
}

func orText(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
