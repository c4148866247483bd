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
	// rollWait is how long servers may take to say how they stand. One that does not is said not to answer.
	rollWait = 2 * time.Second
	// rollMore is how long those are waited for of whom nothing is known: servers that work no lanes hold no leases.
	rollMore = 200 * time.Millisecond
)

// callRoll asks all servers of the log how they stand, and waits for those that are known to be there.
func callRoll(ctx context.Context, nc *nats.Conn, known []string) ([]server.Card, error) {
	ctx, cancel := context.WithTimeout(ctx, rollWait)
	defer cancel()
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answers.Unsubscribe() }()
	if err := nc.PublishRequest(server.RollCall, inbox, nil); err != nil {
		return nil, err
	}
	var cards []server.Card
	missing := slices.Clone(known)
	for all := false; ; {
		if !all && len(missing) == 0 && len(cards) > 0 {
			all = true
			ctx, cancel = context.WithTimeout(ctx, rollMore)
			defer cancel()
		}
		m, err := answers.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrNoResponders):
			return cards, nil
		case err != nil:
			return cards, err
		}
		var card server.Card
		if err := json.Unmarshal(m.Data, &card); err != nil {
			return cards, fmt.Errorf("a server's answer on %s: %w; use the scrip that is of its version", server.RollCall, err)
		}
		cards = append(cards, card)
		missing = slices.DeleteFunc(missing, func(id string) bool { return id == card.Server })
	}
}

// serverStatus is one server as it describes itself.
type serverStatus struct {
	Server   string        `json:"server"`
	Answers  bool          `json:"answers"`
	Ready    bool          `json:"ready"`
	Version  string        `json:"version,omitempty"`
	Roles    []server.Role `json:"roles,omitempty"`
	Settings string        `json:"settings,omitempty"`
}

// askServers adds what the servers say of themselves.
func (st *status) askServers(ctx context.Context, nc *nats.Conn) {
	cards, err := callRoll(ctx, nc, st.Servers)
	if err != nil {
		st.Ready, st.Note = false, "the servers do not say how they stand: "+err.Error()
	}
	st.Checks = map[string]server.Result{}
	for _, card := range cards {
		st.PerServer = append(st.PerServer, serverStatus{card.Server, true, card.Ready, card.Version, card.Roles, settings(card.Checks)})
		st.Ready = st.Ready && card.Ready
		for name, check := range card.Checks {
			// What is not well somewhere is what to look at.
			if known, there := st.Checks[name]; !there || known.OK && !check.OK {
				st.Checks[name] = check
			}
		}
		st.hear(card)
	}
	for _, id := range st.Servers {
		if !slices.ContainsFunc(cards, func(c server.Card) bool { return c.Server == id }) {
			st.Ready = false
			st.PerServer = append(st.PerServer, serverStatus{Server: id})
		}
	}
	slices.SortFunc(st.PerServer, func(a, b serverStatus) int { return strings.Compare(a.Server, b.Server) })
	if len(cards) == 0 && err == nil {
		st.Ready, st.Note = false, "no server says how it stands; start one with scrip serve"
	}
}

// hear takes over what a server says of lanes.
func (st *status) hear(card server.Card) {
	var lanes struct{ Lanes []server.LaneReadiness }
	if detailed(card.Checks["lanes"], &lanes) {
		for _, r := range lanes.Lanes {
			if r.Lane < 0 || r.Lane >= len(st.PerLane) { // whoever hears the call can answer anything
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
				l.State = "elsewhere" // until its holder says more
			}
		}
	}
	var tables struct{ Lanes []server.Projected }
	if detailed(card.Checks["projector"], &tables) {
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

// settings says which run-time settings a server has in force, "" = not known.
func settings(checks map[string]server.Result) string {
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

// backlogs are the rows of what is due and will be, of lanes and priorities that have any.
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

// backlogHead heads them. Due next: reminders, and seconds in which coupons of a campaign fall.
const backlogHead = "LANE PRIORITY OLDEST-DUE WAITING DUE-IN-1s 10s 1m 10m 1h"
