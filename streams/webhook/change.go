package webhook

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What a change does.
const (
	Create  = "create"
	Rotate  = "rotate"  // Secret is new; the one before signs too for RotationPeriod
	Pause   = "pause"   // by a person
	Resume  = "resume"  // also of a disabled one
	Delete  = "delete"  //
	Replay  = "replay"  // from From on, everything is delivered again
	Test    = "test"    // asks for a test request
	Tested  = "tested"  // Reason is its result; by a server, as all below
	Disable = "disable" // Reason says why
	Failing = "failing" // since From
	Works   = "works"
)

// RotationPeriod is how long the secret before signs, too, after a rotation.
const RotationPeriod = 24 * time.Hour

const (
	keyPrefix = "change."
	keyDigits = 10
	// endpointsMost bounds the endpoints that exist at a time: each has consumers on every lane.
	endpointsMost = 100
)

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

func changeKey(n uint64) string { return keyPrefix + fmt.Sprintf("%0*d", keyDigits, n) }

// parseChange reads a key and its value. ok is false if it is no change.
func parseChange(key string, value []byte) (c Change, ok bool) {
	digits, ok := strings.CutPrefix(key, keyPrefix)
	n, err := strconv.ParseUint(digits, 10, 63)
	if !ok || err != nil || changeKey(n) != key || json.Unmarshal(value, &c) != nil {
		return Change{}, false
	}
	c.N = n
	return c, true
}

// registry is the fold of all changes.
type registry struct {
	last      uint64 // number
	endpoints map[string]*Endpoint
	gone      map[string]*Endpoint // deleted
}

func newRegistry() *registry {
	return &registry{endpoints: map[string]*Endpoint{}, gone: map[string]*Endpoint{}}
}

// apply folds the next change. The error is why it has no effect.
func (r *registry) apply(c Change) error {
	r.last = max(r.last, c.N)
	e := r.endpoints[c.Webhook]
	switch {
	case c.What == Create && (e != nil || r.gone[c.Webhook] != nil):
		return fmt.Errorf("webhook %s exists", c.Webhook)
	case c.What == Create && len(r.endpoints) >= endpointsMost:
		return fmt.Errorf("there are %d webhooks, the most that can be; delete one first", endpointsMost)
	case c.What == Create:
		if c.Settings == nil {
			return fmt.Errorf("settings are missing")
		}
		s, err := c.Settings.Validate()
		if err != nil {
			return err
		}
		r.endpoints[c.Webhook] = &Endpoint{ID: c.Webhook, Settings: s, State: Active, Created: c.At, By: c.By, Since: c.At, secrets: [][]byte{c.Secret}, version: c.N}
		return nil
	case e == nil:
		return fmt.Errorf("there is no webhook %.40q; scrip webhook list shows all", c.Webhook)
	}
	switch c.What {
	case Rotate:
		e.secrets, e.rotated = [][]byte{c.Secret, e.secrets[0]}, c.At.Add(RotationPeriod)
		e.version = c.N
	case Pause:
		e.State, e.Reason, e.version = Paused, "", c.N
	case Resume:
		e.State, e.Reason, e.FailingSince, e.version = Active, "", time.Time{}, c.N
	case Disable:
		e.State, e.Reason, e.version = Disabled, c.Reason, c.N
	case Delete:
		delete(r.endpoints, c.Webhook)
		r.gone[c.Webhook] = e
	case Replay:
		if c.From.IsZero() || c.From.After(c.At) {
			return fmt.Errorf("from must be a time in the past")
		}
		e.generation++
		e.Since, e.version = c.From, c.N
	case Test:
		e.test = c.N
	case Tested:
		e.test, e.LastTest = 0, c.Reason
	case Failing:
		e.FailingSince = c.From
	case Works:
		e.FailingSince = time.Time{}
	default:
		return fmt.Errorf("the change %.40q is of a newer version", c.What)
	}
	return nil
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
