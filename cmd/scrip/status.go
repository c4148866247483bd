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
		Use: "status", Short: "Say how the server and its lanes stand", Args: noArgs,
		Long: `Say how the server and its lanes stand: what the log holds, who works each lane, what has not been decided yet, how far
the read tables are, how many dead letters are open. Where a lane has stopped, it says why and what to do. Each server of
the log is asked, whichever machine it runs on.

OLDEST-DUE is how long the oldest expiry or reminder that is due has waited: the number to watch. WAITING customers are due
and wait for their turn. DUE-IN counts what falls due soon: reminders + seconds in which coupons of a campaign expire.

The exit code is 0 when all lanes are worked and the server is ready, else 1.`,
	}
	return m.asks(cmd, func(ctx context.Context, s *session, _ []string) error {
		st, err := look(ctx, s)
		if err != nil {
			return err
		}
		if m.global.output == outputJSON {
			err = m.printJSON(st)
		} else {
			err = m.printStatus(st)
		}
		if err == nil && !st.Ready {
			err = errors.New("not ready")
		}
		return err
	})
}

// status is what `scrip status` tells.
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
	// PerServer is what each server says of itself.
	PerServer []serverStatus           `json:"server"`
	Checks    map[string]server.Result `json:"checks,omitempty"`
	// DeadLetters are the open ones; nil where NoDeadLetters says why they are not known.
	DeadLetters   *deadletter.Counts `json:"dead_letters,omitempty"`
	NoDeadLetters string             `json:"dead_letters_unknown,omitempty"`
	// Note says why there are no checks.
	Note string `json:"note,omitempty"`
}

// laneStatus is one lane as the log and the leases show it, with what its owner says where that is this server.
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
	// Backlog is what its scheduler has before it, nil while that is not known.
	Backlog *scheduler.Backlog `json:"backlog,omitempty"`
}

// look gathers it: from the log itself, the leases, and the server's own /readyz where that is known.
func look(ctx context.Context, s *session) (*status, error) {
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
		l, err := lookAt(ctx, js, log, n)
		if err != nil {
			return nil, fmt.Errorf("lane %d: %w", n, err)
		}
		l.Holder = holders.Holders[n].Server
		st.PerLane = append(st.PerLane, l)
		st.Ready = st.Ready && l.Holder != ""
	}
	st.askServers(ctx, s.nc)
	st.countDeadLetters(ctx, s.server.PostgresURL)
	return st, nil
}

// lookAt reads how a lane's streams end.
func lookAt(ctx context.Context, js jetstream.JetStream, log topology.Log, n int) (laneStatus, error) {
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

// lettersWait is how long the read tables may take to count dead letters: the rest is told without.
const lettersWait = 3 * time.Second

// countDeadLetters adds how many are open. They are in the read tables, which may be away.
func (st *status) countDeadLetters(ctx context.Context, postgres string) {
	if postgres == "" {
		st.NoDeadLetters = "where the read tables are is not known here"
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lettersWait)
	defer cancel()
	db, err := schema.Connect(ctx, postgres)
	if err != nil {
		st.NoDeadLetters = "the read tables do not answer"
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

// letters says in words how many dead letters are open.
func (st *status) letters() string {
	c := st.DeadLetters
	switch {
	case c == nil:
		return "not known: " + st.NoDeadLetters
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

func askReady(ctx context.Context, at string) (server.Readiness, error) {
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
	if err := m.printFields(rows); err != nil {
		return err
	}
	var lanes [][]string
	for _, l := range st.PerLane {
		state := l.State
		if state == "" {
			state = "-"
			if l.Holder == "" {
				state = "nobody works it"
			}
		}
		lanes = append(lanes, []string{strconv.Itoa(l.Lane), state, orText(l.Holder, "-"), fmt.Sprint(l.Events), fmt.Sprint(l.Commands), fmt.Sprint(l.Undecided),
			orText(l.Tables, "-"), fmt.Sprint(l.Behind), l.Error})
	}
	if err := m.printTable("LANE STATE HOLDER EVENTS COMMANDS UNDECIDED TABLES BEHIND PROBLEM", lanes); err != nil {
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
	if err := m.printTable("SERVER STATE ROLES SETTINGS", servers); err != nil {
		return err
	}
	if due := st.backlogs(); len(due) > 0 {
		return m.printTable(backlogHead, due)
	}
	return nil
}

// problem is what a check says is wrong, if it says it in words.
func problem(c server.Result) string {
	var words struct{ Error string }
	if detailed(c, &words) && words.Error != "" {
		return words.Error
	}
	return "see below, or /readyz"
}

func orText(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
