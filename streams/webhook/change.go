package webhook

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/registry"
)

// What a change does.
const (
	Create  = "create"
	Update  = "update"  // Config is new, all of it
	Rotate  = "rotate"  // Secret is new; the one before signs too for RotationPeriod
	Pause   = "pause"   // by a person
	Resume  = "resume"  // also of a disabled one
	Delete  = "delete"  //
	Replay  = "replay"  // from From on, everything is delivered again; From is not after an event that is not delivered
	Test    = "test"    // requests a test request
	Tested  = "tested"  // Reason is its result; by a server
	Retry   = "retry"   // requests that dead letters are delivered again
	Retried = "retried" // Reason is the result; by a server, as Tested
	// Rehearse requests that the newest event is delivered, and that the answers of the first Fail tries count as failures.
	Rehearse  = "rehearse"
	Rehearsed = "rehearsed" // Reason is the result; by a server, as all below
	Disable   = "disable"   // Reason is why
	Failing   = "failing"   // since From
	Works     = "works"
)

// RotationPeriod is how long the secret before signs, too, after a rotation.
const RotationPeriod = 24 * time.Hour

// endpointsMost bounds the endpoints that exist at a time: each has consumers on every lane.
const endpointsMost = 100

// Change is one change of one endpoint.
type Change struct {
	Webhook string    `json:"webhook"`
	What    string    `json:"what"`
	Config  *Config   `json:"config,omitempty"`
	Secret  []byte    `json:"secret,omitempty"` // sealed
	From    time.Time `json:"from,omitzero"`
	Fail    int       `json:"fail,omitempty"`
	Reason  string    `json:"reason,omitempty"`
}

// state is the fold of all changes.
type state struct {
	endpoints map[string]*Endpoint
	gone      map[string]*Endpoint // deleted; these do not change any more
}

func newState() *state {
	return &state{endpoints: map[string]*Endpoint{}, gone: map[string]*Endpoint{}}
}

// take puts a change in force. The error is why it has no effect.
func (s *state) take(change *registry.Change[Change]) error {
	c, at, n := &change.Record, change.At, change.N
	e := s.endpoints[c.Webhook]
	switch {
	case c.What == Create && (e != nil || s.gone[c.Webhook] != nil):
		return fmt.Errorf("webhook %s exists", c.Webhook)
	case c.What == Create && len(s.endpoints) >= endpointsMost:
		return fmt.Errorf("there are %d webhooks, the most that can be; delete one first", endpointsMost)
	case c.What == Create:
		chosen, err := c.config()
		if err != nil {
			return err
		}
		s.endpoints[c.Webhook] = &Endpoint{
			ID: c.Webhook, Config: chosen, State: Active, Created: at, By: change.By, Since: at, Version: n,
			secrets: [][]byte{c.Secret}, audiences: [2]audience{{since: at}, {since: at}},
		}
		return nil
	case e == nil:
		return fmt.Errorf("there is no webhook %.40q; scrip webhook list shows all", c.Webhook)
	}
	switch c.What {
	case Update:
		chosen, err := c.config()
		if err != nil {
			return err
		}
		for kind := range e.audiences {
			e.audiences[kind].become(e.wants(kind == reminders), chosen.wants(kind == reminders), at)
		}
		e.Config, e.FailingSince, e.Version = chosen, time.Time{}, n
	case Rotate:
		e.secrets, e.rotated = [][]byte{c.Secret, e.secrets[0]}, at.Add(RotationPeriod)
		e.Version = n
	case Pause:
		e.State, e.Reason, e.Version = Paused, "", n
	case Resume:
		e.State, e.Reason, e.FailingSince, e.Version = Active, "", time.Time{}, n
	case Disable:
		e.State, e.Reason, e.Version = Disabled, c.Reason, n
	case Delete:
		delete(s.endpoints, c.Webhook)
		s.gone[c.Webhook] = e
	case Replay:
		if c.From.IsZero() || c.From.After(at) {
			return fmt.Errorf("from must be a time in the past")
		}
		for kind := range e.audiences {
			e.audiences[kind] = audience{e.audiences[kind].generation + 1, c.From}
		}
		e.Since, e.Version = c.From, n
	case Test:
		e.test = n
	case Tested:
		e.test, e.LastTest = 0, c.Reason
	case Retry:
		e.retry = n
	case Retried:
		e.retry, e.LastRetry = 0, c.Reason
	case Rehearse:
		e.rehearsal, e.fail, e.LastRehearsal = n, c.Fail, ""
	case Rehearsed:
		e.rehearsal, e.LastRehearsal = 0, c.Reason
	case Failing:
		e.FailingSince = c.From
	case Works:
		e.FailingSince = time.Time{}
	default:
		return fmt.Errorf("the change %.40q is of a newer version", c.What)
	}
	return nil
}

// choices returns the config of a change, with their defaults.
func (c *Change) config() (Config, error) {
	if c.Config == nil {
		return Config{}, errors.New("config is missing")
	}
	return c.Config.Validate()
}

// list returns copies of the endpoints, oldest first.
func (s *state) list() []Endpoint {
	var all []Endpoint
	for _, e := range s.endpoints {
		all = append(all, *e)
	}
	slices.SortFunc(all, func(a, b Endpoint) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	return all
}
