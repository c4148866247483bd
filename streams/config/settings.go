package config

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// Settings are what operators may change while servers run. A Settings is never changed once made: a change makes a new
// one.
type Settings struct {
	// ReminderBatch is the most customers that one message on a reminder stream tells, 1 to 500.
	ReminderBatch int
	// ReminderRate is the most messages a second on the reminder stream of each lane, 1 to 1,000,000; 0 = no limit.
	ReminderRate int
	// ReminderConcurrency is how many messages of a lane's fan-out may be on their way to the stream at once, 1 to 64, on a
	// log of one copy; with replicas one message is on its way at a time.
	ReminderConcurrency int
	// ReminderGrace is how late a reminder may still fire although what it announces has passed; later than that it is
	// dropped and counted. 1 s to a year.
	ReminderGrace time.Duration
	// DeadLetterQuote is how many bytes of a bad line its dead letter quotes at most, 0 to domain.MaxQuoted.
	DeadLetterQuote int
	// ClockTolerance is how far ahead a clock may be before lanes wait rather than expire the future: the machine's wall
	// clock of its steady one, and a command's timestamp of the machine's clock. 1 s to a year.
	ClockTolerance time.Duration
	// ClockAccepted is when somebody last saw that the machines' clocks are right, by a clock of theirs; zero = never. A step
	// ahead that a server noticed before then is followed, later ones are not: see wall.Options.
	ClockAccepted time.Time
	// ExpiryPaused and RemindersPaused name the campaigns for which nothing is announced or fired for now. Neither makes
	// a coupon live longer: expiry is decided when somebody redeems.
	ExpiryPaused, RemindersPaused map[string]bool
}

// Default is what holds where nothing was set.
func Default() *Settings {
	return &Settings{ReminderBatch: 500, ReminderConcurrency: 64, ReminderGrace: domain.DefaultReminderGrace, DeadLetterQuote: domain.MaxQuoted, ClockTolerance: wall.DefaultTolerance}
}

// Validate says which setting lies outside its bounds, naming it and them, and which do not go together. Settings that
// pass can be put in force.
func (s *Settings) Validate() error {
	if err := s.numbers(); err != nil {
		return err
	}
	for _, p := range pauses {
		for campaign := range *p.field(s) {
			if !domain.ValidCampaignName(campaign) {
				return fmt.Errorf("%s%s: that is no name of a campaign", p.prefix, campaign)
			}
		}
	}
	return nil
}

// numbers is Validate without the campaigns, which no other setting depends on.
func (s *Settings) numbers() error {
	var problems []error
	for _, k := range scalars {
		if problem := k.check(s); problem != "" {
			problems = append(problems, fmt.Errorf("%s is %s, %s", k.name, k.text(s), problem))
		}
	}
	return errors.Join(problems...)
}

// clone shares nothing with s, and names only what is paused.
func (s *Settings) clone() *Settings {
	c := *s
	for _, p := range pauses {
		field := p.field(&c)
		*field = maps.Clone(*field)
		maps.DeleteFunc(*field, func(_ string, paused bool) bool { return !paused })
	}
	return &c
}

// equal says whether the same is in force.
func (s *Settings) equal(o *Settings) bool {
	for _, k := range scalars {
		if k.text(s) != k.text(o) {
			return false
		}
	}
	for _, p := range pauses {
		if !maps.Equal(*p.field(s), *p.field(o)) {
			return false
		}
	}
	return true
}

// Source tells the settings in force.
type Source interface {
	// Current returns the settings, and a channel that is closed when there are others. It never returns nil settings.
	Current() (now *Settings, changed <-chan struct{})
}

// Fixed is a Source of settings that never change.
func Fixed(s *Settings) Source { return fixed{s} }

type fixed struct{ settings *Settings }

func (f fixed) Current() (*Settings, <-chan struct{}) { return f.settings, nil }
