package webhook

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/changelog"
)

// What a change does.
const (
	Create  = "create"
	Update  = "update"  // Settings are new, all of them
	Rotate  = "rotate"  // Secret is new; the one before signs too for RotationPeriod
	Pause   = "pause"   // by a person
	Resume  = "resume"  // also of a disabled one
	Delete  = "delete"  //
	Replay  = "replay"  // from From on, everything is delivered again; From is not after an event that is not delivered
	Test    = "test"    // requests a test request
	Tested  = "tested"  // Reason is its result; by a server
	Retry   = "retry"   // requests that dead letters are delivered again
	Retried = "retried" // Reason is the result; by a server, as all below
	Disable = "disable" // Reason says why
	Failing = "failing" // since From
	Works   = "works"
)

// RotationPeriod is how long the secret before signs, too, after a rotation.
const RotationPeriod = 24 * time.Hour

// endpointsMost bounds the endpoints that exist at a time: each has consumers on every lane.
const endpointsMost = 100

// Change is one change of one endpoint.
type Change struct {
	N        uint64    `json:"-"`
	Webhook  string    `json:"webhook"`
	What     string    `json:"what"`
	Settings *Settings `json:"settings,omitempty"`
	Secret   []byte    `json:"secret,omitempty"` // sealed
	From     time.Time `json:"from,omitzero"`
	Reason   string    `json:"reason,omitempty"`
	By       string    `json:"by"`
	At       time.Time `json:"at"`
}

// registry is the fold of all changes.
type registry struct {
	changelog.Numbers
	endpoints map[string]*Endpoint
	gone      map[string]*Endpoint // deleted; these do not change any more
}

func newRegistry() *registry {
	return &registry{endpoints: map[string]*Endpoint{}, gone: map[string]*Endpoint{}}
}

// fold folds the next message of the bucket. The error is why it has no effect: it is of a newer version, or was written by
// hand.
func (r *registry) fold(m changelog.Message) error {
	n, numbered := changelog.Number(m.Key)
	near := r.Add(n)
	switch {
	case m.Deleted:
		return errors.New("it is a deletion, and changes are never deleted")
	case !numbered:
		return fmt.Errorf("its key %.40q is no number of a change", m.Key)
	case !near:
		return fmt.Errorf("its number is more than %d above %d, the highest before it", changelog.MostAhead, r.Last)
	}
	var c Change
	if err := json.Unmarshal(m.Value, &c); err != nil {
		return fmt.Errorf("it is no change: %w", err)
	}
	c.N = n
	return r.apply(c)
}

// apply puts a change in force. The error is why it has no effect.
func (r *registry) apply(c Change) error {
	e := r.endpoints[c.Webhook]
	switch {
	case c.What == Create && (e != nil || r.gone[c.Webhook] != nil):
		return fmt.Errorf("webhook %s exists", c.Webhook)
	case c.What == Create && len(r.endpoints) >= endpointsMost:
		return fmt.Errorf("there are %d webhooks, the most that can be; delete one first", endpointsMost)
	case c.What == Create:
		s, err := c.settings()
		if err != nil {
			return err
		}
		r.endpoints[c.Webhook] = &Endpoint{
			ID: c.Webhook, Settings: s, State: Active, Created: c.At, By: c.By, Since: c.At, Version: c.N,
			secrets: [][]byte{c.Secret}, audiences: [2]audience{{since: c.At}, {since: c.At}},
		}
		return nil
	case e == nil:
		return fmt.Errorf("there is no webhook %.40q; scrip webhook list shows all", c.Webhook)
	}
	switch c.What {
	case Update:
		s, err := c.settings()
		if err != nil {
			return err
		}
		for kind := range e.audiences {
			e.audiences[kind].become(e.wants(kind == reminders), s.wants(kind == reminders), c.At)
		}
		e.Settings, e.FailingSince, e.Version = s, time.Time{}, c.N
	case Rotate:
		e.secrets, e.rotated = [][]byte{c.Secret, e.secrets[0]}, c.At.Add(RotationPeriod)
		e.Version = c.N
	case Pause:
		e.State, e.Reason, e.Version = Paused, "", c.N
	case Resume:
		e.State, e.Reason, e.FailingSince, e.Version = Active, "", time.Time{}, c.N
	case Disable:
		e.State, e.Reason, e.Version = Disabled, c.Reason, c.N
	case Delete:
		delete(r.endpoints, c.Webhook)
		r.gone[c.Webhook] = e
	case Replay:
		if c.From.IsZero() || c.From.After(c.At) {
			return fmt.Errorf("from must be a time in the past")
		}
		for kind := range e.audiences {
			e.audiences[kind] = audience{e.audiences[kind].generation + 1, c.From}
		}
		e.Since, e.Version = c.From, c.N
	case Test:
		e.test = c.N
	case Tested:
		e.test, e.LastTest = 0, c.Reason
	case Retry:
		e.retry = c.N
	case Retried:
		e.retry, e.LastRetry = 0, c.Reason
	case Failing:
		e.FailingSince = c.From
	case Works:
		e.FailingSince = time.Time{}
	default:
		return fmt.Errorf("the change %.40q is of a newer version", c.What)
	}
	return nil
}

// settings returns the settings of a change, with their defaults.
func (c *Change) settings() (Settings, error) {
	if c.Settings == nil {
		return Settings{}, errors.New("settings are missing")
	}
	return c.Settings.Validate()
}

// list returns copies of the endpoints, oldest first.
func (r *registry) list() []Endpoint {
	var all []Endpoint
	for _, e := range r.endpoints {
		all = append(all, *e)
	}
	slices.SortFunc(all, func(a, b Endpoint) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	return all
}
