package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/projections/projector"
	"github.com/seed-4a2410e3/scrip/streams/lane"
)

const (
	// reportWait is how long to wait for the servers' reports. A server without one is listed as not answering.
	reportWait = 2 * time.Second
	// reportMore is how long to wait for servers that hold no leases and so are not known: those that own no lanes.
	reportMore = 200 * time.Millisecond
)

// Reports requests a report from all servers of the log, and waits for the known ones.
func Reports(ctx context.Context, nc *nats.Conn, known []string) ([]Report, error) {
	ctx, cancel := context.WithTimeout(ctx, reportWait)
	defer cancel()
	inbox := nc.NewInbox()
	replies, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = replies.Unsubscribe() }()
	if err := nc.PublishRequest(Subject, inbox, nil); err != nil {
		return nil, err
	}
	var reports []Report
	missing := slices.Clone(known)
	for all := false; ; {
		if !all && len(missing) == 0 && len(reports) > 0 {
			all = true
			ctx, cancel = context.WithTimeout(ctx, reportMore)
			defer cancel()
		}
		m, err := replies.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrNoResponders):
			return reports, nil
		case err != nil:
			return reports, err
		}
		var report Report
		if err := json.Unmarshal(m.Data, &report); err != nil {
			return reports, fmt.Errorf("a server's reply on %s: %w; use a scrip of its version", Subject, err)
		}
		reports = append(reports, report)
		missing = slices.DeleteFunc(missing, func(id string) bool { return id == report.Server })
	}
}

// Server is one server's report.
type Server struct {
	Server   string   `json:"server"`
	Answers  bool     `json:"answers"`
	Ready    bool     `json:"ready"`
	Version  string   `json:"version,omitempty"`
	Roles    []string `json:"roles,omitempty"`
	Settings string   `json:"settings,omitempty"`
	Limits   []Limit  `json:"limits,omitempty"`
}

// addServers adds the servers' reports.
func (st *Status) addServers(ctx context.Context, nc *nats.Conn) {
	reports, err := Reports(ctx, nc, st.Servers)
	if err != nil {
		st.Ready, st.Note = false, "requesting the servers' status: "+err.Error()
	}
	st.addReports(reports)
	for _, id := range st.Servers {
		if !slices.ContainsFunc(reports, func(c Report) bool { return c.Server == id }) {
			st.Ready = false
			st.PerServer = append(st.PerServer, Server{Server: id})
		}
	}
	slices.SortFunc(st.PerServer, func(a, b Server) int { return strings.Compare(a.Server, b.Server) })
	if len(reports) == 0 && err == nil {
		st.Ready, st.Note = false, "no server answers; start one with scrip serve"
	}
}

// addReports adds what servers replied.
func (st *Status) addReports(reports []Report) {
	st.Checks = map[string]Result{}
	for _, report := range reports {
		st.PerServer = append(st.PerServer, Server{report.Server, true, report.Ready, report.Version, report.Roles, settingsInForce(report.Checks), report.Limits})
		st.Ready = st.Ready && report.Ready
		for name, check := range report.Checks {
			// A check that failed at any server is shown.
			if known, there := st.Checks[name]; !there || known.OK && !check.OK {
				st.Checks[name] = check
			}
		}
		var log struct{ Endangered map[string][]string }
		if report.Checks["log"].Detailed(&log) && len(log.Endangered) > 0 {
			st.Ready, st.Checks["log"] = false, report.Checks["log"] // although servers answer claims, and are ready
		}
		st.addLanes(report)
	}
	tables := Tables(reports)
	for n := range st.PerLane {
		p, known := tables[n]
		if !known {
			continue
		}
		st.PerLane[n].addTables(p)
		if p.State == projector.Standby { // each server is fine, as far as it knows
			st.Checks["projector"] = Result{Detail: map[string]any{"error": st.PerLane[n].Error}}
		}
	}
}

// addLanes adds a server's report about lanes.
func (st *Status) addLanes(report Report) {
	for _, r := range report.Lanes() {
		if r.Lane < 0 || r.Lane >= len(st.PerLane) { // any client of this NATS server can reply
			continue
		}
		l := &st.PerLane[r.Lane]
		switch {
		case r.State != lane.StateIdle:
			l.State, l.Error, l.Backlog, l.Outcomes = string(r.State), r.Error, r.Backlog, r.Outcomes
			if l.Error == "" && r.DueWaits != "" {
				l.Error = "expiries and reminders wait: " + r.DueWaits
			}
		case r.Error != "" && l.State == "":
			l.State, l.Error = string(r.State), r.Error
		case r.Holder != "" && l.State == "":
			l.State = "elsewhere" // until its owner's report
		}
	}
}

// addTables adds what the server reports that fills them. Without one it is not known how far they are: a server on standby only
// knows that it does not fill them.
func (l *Lane) addTables(p Projected) {
	l.Tables, l.Behind, l.TablesAt, l.LagSeconds, l.Current = string(p.State), p.Behind, p.Sequence, p.LagSeconds, p.Current
	if l.Behind == nil && p.State.Works() && p.Sequence > 0 && p.Sequence <= l.Events { // it waits or has stopped, and knows where
		behind := l.Events - p.Sequence
		l.Behind = &behind
	}
	problem := p.Error
	if p.State == projector.Standby {
		problem = "no server that answers fills them; the projector's lock has " + p.LockedBy
	}
	if problem != "" && l.Error == "" {
		l.Error = "tables: " + problem
	}
}

// Tables are the rows about read tables by lane: of each lane the row of the server that fills them. The others are on standby and
// know nothing about them.
func Tables(reports []Report) map[int]Projected {
	best := map[int]Projected{}
	for _, r := range reports {
		for _, p := range r.Tables() {
			if now, known := best[p.Lane]; !known || p.Ahead(&now) {
				best[p.Lane] = p
			}
		}
	}
	return best
}

// Lanes are what the server reports about lanes.
func (r *Report) Lanes() []LaneReadiness {
	var lanes struct{ Lanes []LaneReadiness }
	r.Checks["lanes"].Detailed(&lanes)
	return lanes.Lanes
}

// Tables are what it reports about read tables.
func (r *Report) Tables() []Projected {
	var tables struct{ Lanes []Projected }
	r.Checks["projector"].Detailed(&tables)
	return tables.Lanes
}

// settingsInForce describes the run-time settings in force at a server, "" = unknown.
func settingsInForce(checks map[string]Result) string {
	var c ConfigReadiness
	switch {
	case !checks["config"].Detailed(&c):
		return ""
	case c.Change == 0 && c.Revision == 0:
		return "all defaults"
	case c.Ignored > 0:
		return fmt.Sprintf("up to change %d, %d ignored; see scrip config changes", c.Change, c.Ignored)
	}
	return fmt.Sprintf("up to change %d", c.Change)
}
