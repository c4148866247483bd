package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/scheduler"
)

const (
	// reportWait is how long to wait for the servers' reports. A server without one is listed as not answering.
	reportWait = 2 * time.Second
	// reportMore is how long to wait for servers that hold no leases and so are not known: those that own no lanes.
	reportMore = 200 * time.Millisecond
)

// requestReports requests a report from all servers of the log, and waits for the known ones.
func requestReports(ctx context.Context, nc *nats.Conn, known []string) ([]server.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, reportWait)
	defer cancel()
	inbox := nc.NewInbox()
	replies, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = replies.Unsubscribe() }()
	if err := nc.PublishRequest(server.StatusSubject, inbox, nil); err != nil {
		return nil, err
	}
	var reports []server.Report
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
		var report server.Report
		if err := json.Unmarshal(m.Data, &report); err != nil {
			return reports, fmt.Errorf("a server's reply on %s: %w; use a scrip of its version", server.StatusSubject, err)
		}
		reports = append(reports, report)
		missing = slices.DeleteFunc(missing, func(id string) bool { return id == report.Server })
	}
}

// serverStatus is one server's report.
type serverStatus struct {
	Server   string        `json:"server"`
	Answers  bool          `json:"answers"`
	Ready    bool          `json:"ready"`
	Version  string        `json:"version,omitempty"`
	Roles    []server.Role `json:"roles,omitempty"`
	Settings string        `json:"settings,omitempty"`
}

// addServers adds the servers' reports.
func (st *status) addServers(ctx context.Context, nc *nats.Conn) {
	reports, err := requestReports(ctx, nc, st.Servers)
	if err != nil {
		st.Ready, st.Note = false, "requesting the servers' status: "+err.Error()
	}
	st.Checks = map[string]server.Result{}
	for _, report := range reports {
		st.PerServer = append(st.PerServer, serverStatus{report.Server, true, report.Ready, report.Version, report.Roles, settingsInForce(report.Checks)})
		st.Ready = st.Ready && report.Ready
		for name, check := range report.Checks {
			// A check that failed at any server is shown.
			if known, there := st.Checks[name]; !there || known.OK && !check.OK {
				st.Checks[name] = check
			}
		}
		st.addLanes(report)
	}
	for _, id := range st.Servers {
		if !slices.ContainsFunc(reports, func(c server.Report) bool { return c.Server == id }) {
			st.Ready = false
			st.PerServer = append(st.PerServer, serverStatus{Server: id})
		}
	}
	slices.SortFunc(st.PerServer, func(a, b serverStatus) int { return strings.Compare(a.Server, b.Server) })
	if len(reports) == 0 && err == nil {
		st.Ready, st.Note = false, "no server answers; start one with scrip serve"
	}
}

// addLanes adds a server's report about lanes.
func (st *status) addLanes(report server.Report) {
	var lanes struct{ Lanes []server.LaneReadiness }
	if detailed(report.Checks["lanes"], &lanes) {
		for _, r := range lanes.Lanes {
			if r.Lane < 0 || r.Lane >= len(st.PerLane) { // any client of this NATS server can reply
				continue
			}
			l := &st.PerLane[r.Lane]
			switch {
			case r.State != lane.StateIdle:
				l.State, l.Error, l.Backlog = string(r.State), r.Error, r.Backlog
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
	var tables struct{ Lanes []server.Projected }
	if detailed(report.Checks["projector"], &tables) {
		for _, p := range tables.Lanes {
			if p.Lane >= 0 && p.Lane < len(st.PerLane) {
				l := &st.PerLane[p.Lane]
				l.Tables, l.Behind = string(p.State), p.Behind
				if p.Error != "" && l.Error == "" {
					l.Error = "tables: " + p.Error
				}
			}
		}
	}
}

// settingsInForce describes the run-time settings in force at a server, "" = unknown.
func settingsInForce(checks map[string]server.Result) string {
	var c server.ConfigReadiness
	switch {
	case !detailed(checks["config"], &c):
		return ""
	case c.Change == 0 && c.Revision == 0:
		return "all defaults"
	case c.Ignored > 0:
		return fmt.Sprintf("up to change %d, %d ignored; see scrip config history", c.Change, c.Ignored)
	}
	return fmt.Sprintf("up to change %d", c.Change)
}

// backlogs are the rows of lanes and priorities with work that is due now or soon.
func (st *status) backlogs() (rows [][]string) {
	for _, l := range st.PerLane {
		if l.Backlog == nil {
			continue
		}
		for _, p := range []struct {
			name string
			of   scheduler.PriorityBacklog
		}{{"high", l.Backlog.High}, {"normal", l.Backlog.Normal}, {"low", l.Backlog.Low}} {
			row := []string{fmt.Sprint(l.Lane), p.name, p.of.OldestDue.Round(time.Millisecond).String(), fmt.Sprint(p.of.Waiting)}
			some := p.of.OldestDue > 0 || p.of.Waiting > 0
			for i := range p.of.RemindersNext {
				row = append(row, fmt.Sprintf("%d+%d", p.of.RemindersNext[i], p.of.ExpiriesNext[i]))
				some = some || p.of.RemindersNext[i]+p.of.ExpiriesNext[i] > 0
			}
			if some {
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// backlogHead is their heading. Due next: reminders, and seconds in which coupons of a campaign expire.
const backlogHead = "LANE PRIORITY OLDEST-DUE WAITING DUE-IN-1s 10s 1m 10m 1h"
