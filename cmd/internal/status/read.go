package status

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/projections/readmodel"
	"github.com/seed-4a2410e3/scrip/streams/backup"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/lease"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/push/hold"
	"github.com/seed-4a2410e3/scrip/streams/scheduler"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Status is the state of a log and its servers.
type Status struct {
	Ready   bool      `json:"ready"`
	Log     string    `json:"log"`
	Created time.Time `json:"created"`
	Lanes   int       `json:"lanes"`
	Sync    string    `json:"sync,omitempty"`
	NATS    string    `json:"nats"`
	HTTP    string    `json:"http,omitempty"`
	Servers []string  `json:"servers"`
	PerLane []Lane    `json:"lane"`
	// PerServer is each server's own report.
	PerServer []Server          `json:"server"`
	Checks    map[string]Result `json:"checks,omitempty"`
	// DeadLetters are the open ones; nil if NoDeadLetters has the reason why they are unknown.
	DeadLetters   *readmodel.LetterCounts `json:"dead_letters,omitempty"`
	NoDeadLetters string                  `json:"dead_letters_unknown,omitempty"`
	// HeldBack is what was held back for a person, as of some seconds ago; nil if nothing ever was.
	HeldBack *hold.State `json:"held_back,omitempty"`
	// Backup is the last good backup; nil if there was none, or if NoBackup has the reason why it is unknown.
	Backup   *Backup `json:"backup,omitempty" doc:"The last good backup. Absent: there was none, or backup_unknown has the reason why it is not known."`
	NoBackup string  `json:"backup_unknown,omitempty"`
	// DiskLeft is how many bytes are left on the disk of log or tables, and DiskFull in about how many hours it is full; of the
	// server that answers. 0 = not known, or it does not fill.
	DiskLeft uint64  `json:"disk_left,omitempty"`
	DiskFull float64 `json:"disk_full_in_hours,omitempty"`
	// Note is why there are no checks.
	Note string `json:"note,omitempty"`
}

// Backup is the last good backup.
type Backup struct {
	backup.Record
	// Age is how long ago it began: what was answered since then may not be in it.
	Age float64 `json:"age_seconds"`
}

// Lane is one lane by the log and the leases, with the report of its owner.
type Lane struct {
	Lane      int    `json:"lane"`
	Holder    string `json:"holder,omitempty"`
	State     string `json:"state,omitempty"`
	Error     string `json:"error,omitempty"`
	Events    uint64 `json:"event_sequence"`
	Commands  uint64 `json:"command_sequence"`
	Undecided uint64 `json:"undecided_messages"`
	Tables    string `json:"tables,omitempty"`
	// Behind is how many messages the tables lack.
	Behind *uint64 `json:"tables_behind,omitempty" doc:"Messages that the tables lack. Absent: not known, since no projector works on them."`
	// TablesAt is their checkpoint, and LagSeconds how late they are.
	TablesAt   uint64  `json:"tables_event_sequence,omitempty"`
	LagSeconds float64 `json:"tables_lag_seconds,omitempty"`
	// Current is in about how many seconds they are current, at the rate of the last ones; -1 while they do not catch up.
	Current float64 `json:"tables_current_seconds,omitempty"`
	Foreign int     `json:"foreign_messages,omitempty"`
	// Backlog is its scheduler's due work, nil while unknown.
	Backlog *scheduler.Backlog `json:"backlog,omitempty"`
	// Outcomes are how many command lines its owner has answered since it started, by command and what with.
	Outcomes map[string]uint64 `json:"outcomes,omitempty"`
}

// Read collects the status from the log, the leases, the servers' reports and the read tables; letters nil = there are none.
func Read(ctx context.Context, js jetstream.JetStream, log topology.Log, letters *readmodel.Letters) (*Status, error) {
	st := &Status{Ready: true, Log: log.UUID, Created: log.Created, Lanes: log.Lanes, NATS: natsx.WithoutUser(js.Conn().ConnectedUrl())}
	holders, err := lease.Inspect(ctx, js, LeaseGroup, log.Lanes)
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
	held, ok, err := hold.Recorded(ctx, js)
	if err != nil {
		return nil, err
	}
	if ok {
		st.HeldBack = &held
	}
	st.addBackup(ctx, js)
	st.addServers(ctx, js.Conn())
	st.countDeadLetters(ctx, letters)
	return st, nil
}

func (st *Status) addBackup(ctx context.Context, js jetstream.JetStream) {
	last, ok, err := backup.Last(ctx, js)
	switch {
	case err != nil:
		st.NoBackup = err.Error()
	case ok:
		st.Backup = &Backup{last, time.Since(last.Begun).Truncate(time.Second).Seconds()}
	}
}

// readLane reads the ends of a lane's streams.
func readLane(ctx context.Context, js jetstream.JetStream, log topology.Log, n int) (Lane, error) {
	l := Lane{Lane: n}
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

// lettersWait is how long the read tables may take to count dead letters. Later the status is read without them.
const lettersWait = 3 * time.Second

// countDeadLetters adds how many are open. They are in the read tables, which may be unavailable.
func (st *Status) countDeadLetters(ctx context.Context, letters *readmodel.Letters) {
	err := ops.ErrNoTables
	var counts readmodel.LetterCounts
	if letters != nil {
		ctx, cancel := context.WithTimeout(ctx, lettersWait)
		defer cancel()
		counts, err = letters.Open(ctx)
	}
	if err != nil {
		st.NoDeadLetters = err.Error()
		return
	}
	st.DeadLetters = &counts
}
