package settings

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

// Settings are the values that operators may change while servers run. A Settings is immutable: a change makes a new one.
type Settings struct {
	// ReminderBatch is the most customers in one message on a reminder stream, 1 to wire.MaxDueCustomers.
	ReminderBatch int
	// ReminderRate is the most messages a second on the reminder stream of each lane, 1 to 1,000,000; 0 = no limit.
	ReminderRate int
	// ReminderConcurrency is how many messages of a lane's fan-out may be in flight at once, 1 to 64, on a log of one copy; with
	// replicas one message is in flight at a time.
	ReminderConcurrency int
	// ReminderGrace is how late a reminder may still fire although what it announces has passed; later than that it is
	// dropped and counted. 1 s to a year.
	ReminderGrace time.Duration
	// PushMerge is how long a customer's reminders are collected to be one message, up to 1 h; 0 = not at all. PushCap is how many
	// messages a customer gets in one day, 1 to 1,000; 0 = no limit. PushQuiet are hours in which there are none. PushZone is the time
	// zone of customers of whom none is known.
	PushMerge time.Duration
	PushCap   int
	PushQuiet Quiet
	PushZone  string
	// PushShards is into how many parts customers are divided where reminders are held back, 1 to 64. PushBatch is the most
	// customers in one message of them, 1 to wire.MaxDueCustomers.
	PushShards, PushBatch int
	// DeadLetterQuote is how many bytes of a bad line its dead letter quotes at most, 0 to domain.MaxQuoted.
	DeadLetterQuote int
	// ClockTolerance is how far ahead a clock may be before lanes wait instead of expiring coupons too early: the machine's
	// wall clock of its steady one, and a command's timestamp of the machine's clock. 1 s to a year.
	ClockTolerance time.Duration
	// ClockAccepted is when an operator last checked that the machines' clocks are right, by one of these clocks; zero = never.
	// A step ahead that a server noticed before then is followed, later ones are not: see wall.Options.
	ClockAccepted time.Time
	// TablesKeep is for how many days coupons remain in the read tables after their campaign has ended, 1 to 36,500; 0 = for ever.
	TablesKeep int
	// BackupMaxAge is how old the last good backup may be before the alert on it, up to a year; 0 = it is not watched.
	BackupMaxAge time.Duration
	// HTTPRate is how many HTTP requests a second one key may make at each server, 1 to 1,000,000; 0 = no limit. HTTPBurst is how
	// many it may make at once; 0 = those of one second.
	HTTPRate, HTTPBurst int
	// ExpiryPaused and RemindersPaused name the campaigns for which nothing is announced or fired for now. Neither extends a
	// coupon: expiry is decided at the redemption.
	ExpiryPaused, RemindersPaused map[string]bool
}

// Default returns the values where nothing was set.
func Default() *Settings {
	return &Settings{ReminderBatch: wire.MaxDueCustomers, ReminderConcurrency: 64, ReminderGrace: wire.DefaultReminderGrace, DeadLetterQuote: domain.MaxQuoted, ClockTolerance: wall.DefaultTolerance, BackupMaxAge: 48 * time.Hour,
		PushZone: "UTC", PushShards: 4, PushBatch: wire.MaxDueCustomers}
}

// Holds reports whether reminders may be held back for a person.
func (s *Settings) Holds() bool { return s.PushMerge > 0 || s.PushCap > 0 || s.PushQuiet != Quiet{} }

// Validate returns an error that names each setting that cannot have its value. Settings that pass can be put in force.
func (s *Settings) Validate() error {
	var problems []error
	for i := range scalars {
		_, err := scalars[i].put(&Settings{}, scalars[i].text(s))
		problems = append(problems, err)
	}
	for _, p := range pauses {
		for campaign := range *p.field(s) {
			_, err := find(p.prefix + campaign)
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// clone returns a copy that shares nothing with s, without pauses that are false.
func (s *Settings) clone() *Settings {
	c := *s
	for _, p := range pauses {
		field := p.field(&c)
		*field = maps.Clone(*field)
		maps.DeleteFunc(*field, func(_ string, paused bool) bool { return !paused })
	}
	return &c
}

// equal reports whether the same values are in force.
func (s *Settings) equal(o *Settings) bool { return fmt.Sprint(*s) == fmt.Sprint(*o) }

// Source provides the settings in force.
type Source interface {
	// Current returns the settings, and a channel that is closed when there are others. It never returns nil settings.
	Current() (now *Settings, changed <-chan struct{})
}

// Fixed is a Source of settings that never change.
func Fixed(s *Settings) Source { return fixed{s} }

type fixed struct{ settings *Settings }

func (f fixed) Current() (*Settings, <-chan struct{}) { return f.settings, nil }
