package webhook

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Config is what people choose for an endpoint.
type Config struct {
	// URL is https, or http where the server allows that; at most 2,048 bytes, without user and fragment.
	URL string `json:"url"`
	// Types are event types such as coupon.claimed, or coupon.* and campaign.*.
	Types []string `json:"types"`
	// Campaigns limits it to some; none = all. At most 100.
	Campaigns []string `json:"campaigns,omitempty"`
	// Batch is the most events in one request, 1 to 500; 1 sends each by itself. Defaults to 1.
	Batch int `json:"batch,omitempty"`
	// Rate is the most requests a second, 1 to 1,000. Defaults to 50.
	Rate int `json:"rate,omitempty"`
	// Concurrency is the most requests at once, 1 to 64. Defaults to 4.
	Concurrency int `json:"concurrency,omitempty"`
	// MaxAge is after how long an event is not delivered any more, 1h to 720h. Defaults to a week.
	MaxAge wire.Period `json:"max_age,omitempty"`
	// Schedule are the waits after the first failed try, the second, and so on: 1 to 20 durations of 1s to 24h. An event has one
	// try more. Defaults to those of the specification's example: ten tries within three days.
	Schedule []wire.Period `json:"schedule,omitempty"`
	// GiveUp4xx: an answer 4xx other than 408, 409, 410, 425 and 429 makes its events a dead letter at once.
	GiveUp4xx bool `json:"give_up_4xx,omitempty"`
	// Codes includes codes and attributes.
	Codes bool `json:"codes,omitempty"`
}

// schedule are the waits of a config without its own.
var schedule = []wire.Period{5 * second, 5 * minute, 30 * minute, 2 * hour, 5 * hour, 10 * hour, 14 * hour, 20 * hour, 24 * hour}

const (
	second = wire.Period(time.Second)
	minute = wire.Period(time.Minute)
	hour   = wire.Period(time.Hour)
)

// waits returns the schedule of a valid config.
func (s *Config) waits() (all []time.Duration) {
	for _, d := range s.Schedule {
		all = append(all, time.Duration(d))
	}
	return all
}

// delivered are the event types that an endpoint may have.
func delivered(t wire.EventType) bool {
	name := t.String()
	return strings.HasPrefix(name, "coupon") || strings.HasPrefix(name, "campaign.") || t == wire.ReminderDue // which is on streams of its own
}

// Types returns all event types that an endpoint may have.
func Types() []string {
	var all []string
	for t := range wire.Events() {
		if delivered(t) {
			all = append(all, t.String())
		}
	}
	return append(all, wire.ReminderDue.String())
}

// Validate returns the config with its defaults, or an error that names the field.
func (s Config) Validate() (Config, error) {
	u, err := url.Parse(s.URL)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || len(s.URL) > 2048:
		return s, fmt.Errorf("url must be an https URL such as https://shop.example/hooks, at most 2048 bytes")
	case u.User != nil || u.Fragment != "":
		return s, fmt.Errorf("url must have neither user nor fragment; requests are signed")
	case len(s.Types) == 0:
		return s, fmt.Errorf("types: give at least one of coupon.*, campaign.*, %s", strings.Join(Types(), ", "))
	case len(s.Campaigns) > 100:
		return s, fmt.Errorf("campaigns: %d are given, at most 100 can be; give none for all", len(s.Campaigns))
	}
	for _, pattern := range s.Types {
		if pattern != "coupon.*" && pattern != "campaign.*" && !slices.Contains(Types(), pattern) {
			return s, fmt.Errorf("types: %.80q is none of coupon.*, campaign.*, %s", pattern, strings.Join(Types(), ", "))
		}
	}
	for _, name := range s.Campaigns {
		if !wire.ValidCampaignName(name) {
			return s, fmt.Errorf("campaigns: %.80q is no name of a campaign", name)
		}
	}
	if len(s.Schedule) == 0 {
		s.Schedule = schedule
	}
	if len(s.Schedule) > 20 {
		return s, fmt.Errorf("schedule has %d waits; give 1 to 20", len(s.Schedule))
	}
	for _, d := range s.Schedule {
		if d < second || d > 24*hour {
			return s, fmt.Errorf("schedule must be durations of 1s to 24h, such as 5s,5m,2h")
		}
	}
	if s.MaxAge == 0 {
		s.MaxAge = 168 * hour
	}
	if s.MaxAge < hour || s.MaxAge > 720*hour {
		return s, fmt.Errorf("max_age is %s; give 1h to 720h", s.MaxAge)
	}
	for _, n := range []struct {
		name         string
		value        *int
		preset, most int
	}{{"batch", &s.Batch, 1, 500}, {"rate", &s.Rate, 50, 1000}, {"concurrency", &s.Concurrency, 4, 64}} {
		if *n.value == 0 {
			*n.value = n.preset
		}
		if *n.value < 1 || *n.value > n.most {
			return s, fmt.Errorf("%s is %d; give 1 to %d", n.name, *n.value, n.most)
		}
	}
	return s, nil
}

// passes reports whether an event is delivered to the endpoint.
func (s *Config) passes(e *wire.Event) bool {
	return (len(s.Campaigns) == 0 || slices.Contains(s.Campaigns, e.Campaign)) && s.has(e.Type)
}

// namesCustomers reports whether the endpoint gets events that name customers.
func (s *Config) namesCustomers() bool {
	for t := range wire.Events() {
		if t.NamesCustomers() && s.has(t) {
			return true
		}
	}
	return s.has(wire.ReminderDue)
}

// has reports whether the endpoint gets events of a type.
func (s *Config) has(t wire.EventType) bool {
	if !delivered(t) {
		return false
	}
	name := t.String()
	for _, pattern := range s.Types {
		family, any := strings.CutSuffix(pattern, "*")
		if any && strings.HasPrefix(name, family) || pattern == name {
			return true
		}
	}
	return false
}

// wants reports whether any of the types is of reminders, or of events.
func (s *Config) wants(reminders bool) bool {
	return slices.ContainsFunc(s.Types, func(pattern string) bool { return (pattern == wire.ReminderDue.String()) == reminders })
}

// State is whether an endpoint gets requests.
type State string

// The states.
const (
	Active   State = "active"
	Paused   State = "paused"   // by a person
	Disabled State = "disabled" // by a server, see Endpoint.Reason
)

// States are they.
var States = []State{Active, Paused, Disabled}

// Endpoint is the fold of its changes.
type Endpoint struct {
	ID string `json:"id"`
	Config
	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"` // why it is disabled
	// Version is the number of the last change of settings, state or secret.
	Version uint64 `json:"version"`
	// FailingSince is since when every request has failed, zero = they do not; recorded after an hour.
	FailingSince time.Time `json:"failing_since,omitzero"`
	// LastTest is the result of the last test request, and LastRetry that of the last retry of dead letters.
	LastTest  string `json:"last_test,omitempty"`
	LastRetry string `json:"last_retry,omitempty"`
	// LastRehearsal is likewise of a rehearsal.
	LastRehearsal string    `json:"last_rehearsal,omitempty"`
	Created       time.Time `json:"created"`
	By            string    `json:"by"`
	// Since is Created, or the time from which the last replay delivers.
	Since time.Time `json:"since"`

	audiences [2]audience // of events, of reminders
	secrets   [][]byte    // sealed, newest first
	test      uint64      // number of the last change that requests a test and has no result; 0 = none
	retry     uint64      // likewise of a retry of dead letters
	rehearsal uint64      // likewise of a rehearsal, in which so many tries fail:
	fail      int
	rotated   time.Time // until when the second secret signs
}

// TestDelivered is Endpoint.LastTest of a test request that was answered with 2xx.
const TestDelivered = "delivered"

// Testing reports whether a test request was requested and has no result.
func (e *Endpoint) Testing() bool { return e.test != 0 }

// Retrying is Testing of a retry of dead letters.
func (e *Endpoint) Retrying() bool { return e.retry != 0 }

// Rehearsing is Testing of a rehearsal.
func (e *Endpoint) Rehearsing() bool { return e.rehearsal != 0 }

// reminders is the index of the audience of reminders in Endpoint.audiences; events have the other one.
const reminders = 1

// audience is how package push knows an endpoint: by one name for events and one for reminders.
type audience struct {
	generation int       // each is a name of its own; those before the present one are forgotten
	since      time.Time // from when a name that was never used delivers
}

// become follows a change of the types that an endpoint wants, of one kind. When the kind is not wanted any more, its position is
// forgotten; when it is wanted again, delivery starts with what happens from then on.
func (a *audience) become(was, is bool, at time.Time) {
	switch {
	case was && !is:
		a.generation++
	case is && !was:
		a.since = at
	}
}

// names returns the names of an endpoint's audiences of one kind: the present one, and those before it if that is set.
func (e *Endpoint) names(kind int, before bool) (all []string) {
	letter := "e"
	if kind == reminders {
		letter = "r"
	}
	for g := e.audiences[kind].generation; g >= 0; g-- {
		if all = append(all, fmt.Sprintf("webhook-%s-%d%s", e.ID, g, letter)); !before {
			break
		}
	}
	return all
}

// name is the name of the present audience of one kind.
func (e *Endpoint) name(kind int) string { return e.names(kind, false)[0] }
