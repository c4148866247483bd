package status

import (
	"encoding/json"

	"github.com/seed-4a2410e3/scrip/projections/projector"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/scheduler"
	"github.com/seed-4a2410e3/scrip/streams/settings"
)

// Subject is the subject of status requests. Every server of a log replies with a [Report].
const Subject = "scrip.rollcall"

// LeaseGroup is the group of leases by which servers share the lanes.
const LeaseGroup = "lane"

// Report is a server's reply to a status request.
type Report struct {
	Server  string   `json:"server"` // as in the leases
	Version string   `json:"version,omitempty"`
	Roles   []string `json:"roles"`
	Limits  []Limit  `json:"limits,omitempty"`
	Readiness
}

// Limit is a limit of a server's listeners.
type Limit = natsd.Limit

// Readiness is the response of /readyz.
type Readiness struct {
	Ready  bool              `json:"ready"`
	Checks map[string]Result `json:"checks"`
}

// Result is the state of one part.
type Result struct {
	OK     bool `json:"ok"`
	Needed bool `json:"needed"`
	Detail any  `json:"detail,omitempty"`
}

// Brief omits the details, which name servers, addresses and errors.
func (r Readiness) Brief() Readiness {
	checks := make(map[string]Result, len(r.Checks))
	for name, c := range r.Checks {
		checks[name] = Result{OK: c.OK, Needed: c.Needed}
	}
	return Readiness{Ready: r.Ready, Checks: checks}
}

// Detailed reads a check's detail.
func (r Result) Detailed(into any) bool {
	raw, err := json.Marshal(r.Detail)
	return err == nil && r.Detail != nil && json.Unmarshal(raw, into) == nil
}

// LaneReadiness is the detail of /readyz about a lane.
type LaneReadiness struct {
	Lane int `json:"lane"`
	lane.Status
	// Holder is the server that owns the lane, if it is another one.
	Holder string `json:"holder,omitempty"`
	// Backlog is its scheduler's due work, if that runs here and has caught up.
	Backlog *scheduler.Backlog `json:"backlog,omitempty"`
	// Outcomes are how many command lines this server has answered as its owner, by command and what with, such as "claim ok".
	Outcomes map[string]uint64 `json:"outcomes,omitempty"`
	// DueWaits is why expiries and reminders wait, if this server owns the lane and its scheduler has failed.
	DueWaits string `json:"due_waits,omitempty"`
}

// Projected is the detail of /readyz about one lane's read tables.
type Projected struct {
	Lane     int             `json:"lane"`
	State    projector.State `json:"state"`
	Sequence uint64          `json:"event_sequence"`
	// Behind is how many messages they lack, null = not known.
	Behind     *uint64 `json:"behind_messages"`
	LagSeconds float64 `json:"lag_seconds"`
	// Current is in how many seconds they are current, -1 = not known.
	Current float64 `json:"current_seconds"`
	Error   string  `json:"error,omitempty"`
	// LockedBy is the session that has the projector's lock, while this server's projector is on standby.
	LockedBy string `json:"locked_by,omitempty"`
}

// Ahead is true if a row shows more of the tables than another server's row about the same lane. First comes a server that fills
// them, then one that is to.
func (p *Projected) Ahead(of *Projected) bool { return p.rank() > of.rank() }

func (p *Projected) rank() int {
	switch {
	case p.State == projector.Following:
		return 2
	case p.State.Works():
		return 1
	}
	return 0
}

// ConfigReadiness is the detail of /readyz about the run-time settings.
type ConfigReadiness struct {
	settings.Status
	// GraceDefault is the grace of reminders if none is set.
	GraceDefault string `json:"reminder_grace_default"`
}
