package lane

import "time"

// State is what a lane is doing.
type State string

// The states of a lane in this process.
const (
	StateIdle    State = "idle"    // another server's
	StateLoading State = "loading" // reading snapshot and log
	StateOwner   State = "owner"   // deciding
	StateWaiting State = "waiting" // commands are stamped in the future; see Error
	StateFull    State = "full"    // the event log accepts no writes; claims are not answered
	StateUnknown State = "unknown" // the event log does not answer; see Error
	StateStopped State = "stopped" // an operator is needed; see Error
)

// Status is a lane's state as of its last step.
type Status struct {
	State     State     `json:"state"`
	Error     string    `json:"error,omitempty"`
	Owner     string    `json:"owner,omitempty"`
	Sequence  uint64    `json:"event_sequence"`
	Covered   uint64    `json:"command_sequence"`
	Clock     time.Time `json:"clock"`
	Campaigns int       `json:"campaigns"`
	Replayed  int       `json:"replayed"` // event lines folded at the start, after the snapshot
}

// Status may be called from any goroutine.
func (l *Lane) Status() Status { return *l.status.Load() }

// Lane returns the lane's number.
func (l *Lane) Lane() int { return l.opt.Lane }

// report changes the published status. Only the goroutine in Run calls it.
func (l *Lane) report(change func(*Status)) {
	var s Status
	if old := l.status.Load(); old != nil {
		s = *old
	}
	change(&s)
	l.status.Store(&s)
}
