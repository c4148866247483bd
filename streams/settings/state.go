package settings

import (
	"slices"
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
	set      map[string]registry.Change[record]
}

func newState(defaults *Settings) *State {
	return &State{defaults: defaults, now: defaults.clone(), set: map[string]registry.Change[record]{}}
}

// take puts a change in force, or returns the reason why not and changes nothing.
func (s *State) take(c *registry.Change[record]) error {
	k, err := find(c.Record.Setting)
	if err != nil {
		return err
	}
	value := c.Record.Value
	if value == ToDefault {
		value = k.text(s.defaults)
	}
	if _, err = k.put(s.now, value); err != nil {
		return err
	}
	s.set[c.Record.Setting] = *c
	return nil
}

// Settings returns those in force. They are the caller's.
func (s *State) Settings() *Settings { return s.now.clone() }

// Value is a setting in force.
type Value struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`
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
	c, was := s.set[setting]
	return Value{Setting: setting, Value: k.text(s.now), Default: !was || c.Record.Value == ToDefault, Change: c.N, By: c.By, At: c.At}, nil
}

// Values returns all settings in order, without pauses that have their default.
func (s *State) Values() []Value {
	names := make([]string, 0, len(s.set))
	for name, c := range s.set {
		if _, isPause := Pauses(name); isPause && c.Record.Value != ToDefault {
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
	if c, ok := s.set[setting]; ok && c.Record.Value != ToDefault {
		v, _ := s.Value(setting)
		return v.Value
	}
	return ToDefault
}
