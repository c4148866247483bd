package settings

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/registry"
)

// State is the fold of the history up to a change. It is not safe for use by several goroutines at once.
type State struct {
	// Revision is of the last change, 0 = there is none. Ignored counts the changes that are not in force nor ever were.
	Revision uint64
	Ignored  int

	defaults *Settings
	now      *Settings // not shared
	set      map[string]lastSet
}

// lastSet is how a setting was set last.
type lastSet struct {
	value string
	in    *registry.Change[record]
}

func newState(defaults *Settings) *State {
	return &State{defaults: defaults, now: defaults.clone(), set: map[string]lastSet{}}
}

// take puts a change in force, or returns the reason why not and changes nothing.
func (s *State) take(c *registry.Change[record]) error {
	now := s.now.clone()
	for _, one := range c.Record {
		k, err := find(one.Setting)
		if err != nil {
			return err
		}
		value := one.Value
		if value == ToDefault {
			value = k.text(s.defaults)
		}
		if _, err = k.put(now, value); err != nil {
			return err
		}
	}
	for _, one := range c.Record {
		s.set[one.Setting] = lastSet{one.Value, c}
	}
	s.now, s.Revision = now, c.Revision
	return nil
}

// Settings returns those in force. They are the caller's.
func (s *State) Settings() *Settings { return s.now.clone() }

// Value is a setting in force.
type Value struct {
	Setting string          `json:"setting"`
	Value   json.RawMessage `json:"value" doc:"A number, a text or a flag."`
	// Default is true if nothing else was set, or if the default was restored.
	Default bool `json:"default"`
	// Change, By and At are of the change that set it; zero where there was none.
	Change uint64    `json:"change,omitempty"`
	By     string    `json:"by,omitempty"`
	At     time.Time `json:"at,omitzero"`
}

// Value returns the setting of that name. The error is an *InvalidError.
func (s *State) Value(setting string) (Value, error) {
	k, err := find(setting)
	if err != nil {
		return Value{}, err
	}
	v := Value{Setting: setting, Value: k.json(k.text(s.now)), Default: true}
	if last, was := s.set[setting]; was {
		v.Default, v.Change, v.By, v.At = last.value == ToDefault, last.in.N, last.in.By, last.in.At
	}
	return v, nil
}

// Values returns all settings in order, without pauses that have their default.
func (s *State) Values() []Value {
	names := make([]string, 0, len(s.set))
	for name, last := range s.set {
		if _, isPause := Pauses(name); isPause && last.value != ToDefault {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var all []Value
	for i, k := range scalars {
		names = slices.Insert(names, i, k.name)
	}
	for _, name := range names {
		v, _ := s.Value(name)
		all = append(all, v)
	}
	return all
}

// was returns the value that a change of the setting replaces.
func (s *State) was(setting string) string {
	if last, ok := s.set[setting]; ok {
		return last.value
	}
	return ToDefault
}

// ObjectOf is values as an object.
func ObjectOf(values []Value) Object {
	all, of := Object{}, map[string]Object{}
	for _, p := range pauses {
		of[strings.TrimSuffix(p.prefix, ".")] = Object{}
	}
	for _, v := range values {
		if campaign, ok := Pauses(v.Setting); ok {
			of[strings.TrimSuffix(v.Setting, "."+campaign)][campaign] = v.Value
		} else {
			all[v.Setting] = v.Value
		}
	}
	for name, campaigns := range of {
		all[name], _ = json.Marshal(campaigns) // flags: it never fails
	}
	return all
}
