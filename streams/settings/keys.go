package settings

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/registry"
)

// ToDefault is the value that restores a setting's default.
const ToDefault = "default"

// InvalidError is the error of a value that a setting cannot have, or of a setting that does not exist. Its text names the
// setting, the bounds, and an example.
type InvalidError = registry.InvalidError

func invalid(format string, args ...any) error {
	return &InvalidError{Err: fmt.Errorf(format, args...)}
}

// scalar is one setting. Values are stored as text.
type scalar struct {
	name, about string
	campaign    string // of a pause; empty for other settings
	bounds      string // in words
	example     string
	kind        Kind
	least, most int // of a number
	// parse reads a value into s. It returns false, and changes nothing, if the text is no value within the bounds.
	parse func(s *Settings, text string) bool
	text  func(s *Settings) string
}

// scalars in the order in which they are shown.
var scalars = []scalar{
	number("reminder.batch", "customers in one message on a reminder stream at most; 256 KiB hold fewer with long ids", 1, wire.MaxDueCustomers, "500", func(s *Settings) *int { return &s.ReminderBatch }),
	number("reminder.rate", "messages a second on the reminder stream of each lane, 0 = no limit", 0, 1_000_000, "2000", func(s *Settings) *int { return &s.ReminderRate }),
	number("reminder.concurrency", "messages of a lane's fan-out in flight at once, on a log of one copy; with replicas one message is in flight at a time", 1, 64, "16", func(s *Settings) *int { return &s.ReminderConcurrency }),
	period("reminder.grace", "how late a reminder may still fire although what it announces has passed", time.Second, 8760*time.Hour, "15m", func(s *Settings) *time.Duration { return &s.ReminderGrace }),
	period("push.merge", "how long a customer's reminders are collected to be delivered as one message, 0s = not; those of high priority go at once, with what was collected", 0, time.Hour, "1m", func(s *Settings) *time.Duration { return &s.PushMerge }),
	number("push.cap", "messages with reminders that a customer gets in one day at most, 0 = no limit; what is beyond goes on a later day, or is withheld if it is of no use then", 0, 1000, "3", func(s *Settings) *int { return &s.PushCap }),
	{
		name: "push.quiet", about: "hours in which a customer gets no reminders, by the customer's clock; they go when the hours end, or are withheld if they are of no use then",
		bounds: "off, or two times of a day", example: "22:00-08:00", kind: Text,
		parse: func(s *Settings, text string) (ok bool) {
			q, ok := parseQuiet(text)
			if ok {
				s.PushQuiet = q
			}
			return ok
		},
		text: func(s *Settings) string { return s.PushQuiet.String() },
	},
	{
		name: "push.zone", about: "the time zone of customers whose reminders have none", bounds: "a time zone of the IANA database", example: "Europe/Berlin", kind: Text,
		parse: func(s *Settings, text string) bool {
			ok := wire.ValidZone(text)
			if ok {
				s.PushZone = strings.Clone(text)
			}
			return ok
		},
		text: func(s *Settings) string { return s.PushZone },
	},
	number("push.shards", "parts into which customers are divided where reminders are held back; each part uses a core", 1, 64, "8", func(s *Settings) *int { return &s.PushShards }),
	number("push.batch", "customers in one message of reminders that were held back at most; 256 KiB hold fewer with long ids", 1, wire.MaxDueCustomers, "500", func(s *Settings) *int { return &s.PushBatch }),
	number("deadletter.quote", "bytes of a bad line that its dead letter quotes at most, for good; they may hold personal data", 0, domain.MaxQuoted, "0", func(s *Settings) *int { return &s.DeadLetterQuote }),
	period("clock.tolerance", "how far ahead a clock may be before lanes wait: the machine's, set in one step, or the one that stamps commands", time.Second, 8760*time.Hour, "24h", func(s *Settings) *time.Duration { return &s.ClockTolerance }),
	moment("clock.accepted", "when an operator last checked that the clocks of the machines are right: a step ahead that was noticed before then is followed", now, func(s *Settings) *time.Time { return &s.ClockAccepted }),
	number("tables.keep", "days for which coupons remain in the tables after their campaign has ended, and 30 at least after an expiry of their own, 0 = for ever", 0, 36_500, "400", func(s *Settings) *int { return &s.TablesKeep }),
	period("backup.max_age", "how old the last good backup may be before the alert on it, 0s = it is not watched", 0, 8760*time.Hour, "26h", func(s *Settings) *time.Duration { return &s.BackupMaxAge }),
	number("http.rate", "HTTP requests a second of one key at each server, 0 = no limit", 0, 1_000_000, "500", func(s *Settings) *int { return &s.HTTPRate }),
	number("http.burst", "HTTP requests of one key at once, 0 = those of one second", 0, 1_000_000, "2000", func(s *Settings) *int { return &s.HTTPBurst }),
}

// never is the text of a moment that is not set, now that of the present one.
const (
	never = "never"
	now   = "now"
)

// moment is a time. Check replaces now by the time of the call.
func moment(name, about, example string, field func(*Settings) *time.Time) scalar {
	return scalar{
		name: name, about: about, bounds: "now, never or a time as in RFC 3339", example: example, kind: Text,
		parse: func(s *Settings, text string) bool {
			switch text {
			case never:
				*field(s) = time.Time{}
				return true
			case now:
				*field(s) = time.Now().UTC()
				return true
			}
			at, err := time.Parse(time.RFC3339Nano, text)
			if at = at.UTC(); err != nil || at.Year() < 0 || at.Year() > 9999 { // RFC 3339 has no other years
				return false
			}
			*field(s) = at
			return true
		},
		text: func(s *Settings) string {
			if at := *field(s); !at.IsZero() {
				return at.Format(time.RFC3339Nano)
			}
			return never
		},
	}
}

func number(name, about string, least, most int, example string, field func(*Settings) *int) scalar {
	return scalar{
		name: name, about: about, bounds: fmt.Sprintf("a whole number from %d to %d", least, most), example: example, kind: Number, least: least, most: most,
		parse: func(s *Settings, text string) bool {
			n, err := strconv.Atoi(text)
			// As JSON has it: without a plus or leading zeros.
			return err == nil && strconv.Itoa(n) == text && assign(field(s), n, least, most)
		},
		text: func(s *Settings) string { return strconv.Itoa(*field(s)) },
	}
}

func period(name, about string, least, most time.Duration, example string, field func(*Settings) *time.Duration) scalar {
	return scalar{
		name: name, about: about, bounds: fmt.Sprintf("a duration from %s to %s", wire.Period(least), wire.Period(most)), example: example, kind: Text,
		parse: func(s *Settings, text string) bool {
			d, err := time.ParseDuration(text)
			return err == nil && assign(field(s), d, least, most)
		},
		text: func(s *Settings) string { return wire.Period(*field(s)).String() },
	}
}

// assign sets a field if the value is within the bounds.
func assign[T cmp.Ordered](field *T, value, least, most T) bool {
	if value < least || value > most {
		return false
	}
	*field = value
	return true
}

// pause is a family of settings, one for each campaign.
type pause struct {
	prefix, about string
	field         func(*Settings) *map[string]bool
}

// pauses in the order in which they are shown.
var pauses = []pause{
	{"expiry.pause.", "whether expiries of the campaign are not announced for now; redeeming is refused from the instant on all the same", func(s *Settings) *map[string]bool { return &s.ExpiryPaused }},
	{"reminder.pause.", "whether reminders of the campaign do not fire for now", func(s *Settings) *map[string]bool { return &s.RemindersPaused }},
}

const pauseBounds = "true or false"

// of returns the setting for one campaign.
func (p *pause) of(campaign string) scalar {
	return scalar{
		name: p.prefix + campaign, campaign: campaign, bounds: pauseBounds, example: "true", kind: Flag,
		parse: func(s *Settings, text string) bool {
			paused := p.field(s)
			switch {
			case text == "false":
				delete(*paused, campaign)
			case text != "true":
				return false
			case *paused == nil:
				*paused = map[string]bool{campaign: true}
			default:
				(*paused)[campaign] = true
			}
			return true
		},
		text: func(s *Settings) string { return strconv.FormatBool((*p.field(s))[campaign]) },
	}
}

// find finds a setting. The error is an *InvalidError.
func find(name string) (scalar, error) {
	for _, k := range scalars {
		if k.name == name {
			return k, nil
		}
	}
	for i := range pauses {
		campaign, ok := strings.CutPrefix(name, pauses[i].prefix)
		if !ok {
			continue
		}
		if !wire.ValidCampaignName(campaign) {
			return scalar{}, invalid("setting %s: %s is no name of a campaign; give 1 to 64 letters, digits, _ and - after %s", wire.Quote(name), wire.Quote(campaign), pauses[i].prefix)
		}
		return pauses[i].of(campaign), nil
	}
	var names []string
	for _, d := range Describe() {
		names = append(names, d.Name)
	}
	return scalar{}, invalid("there is no setting %s; the settings are %s", wire.Quote(name), strings.Join(names, ", "))
}

// put reads a value into s, which must not be shared, and returns it in its stored form. After an error s is unchanged.
func (k *scalar) put(s *Settings, text string) (string, error) {
	if !k.parse(s, text) {
		return "", invalid("%s can not be %s: it must be %s, such as %s; %s, null in JSON, restores the default", k.name, wire.Quote(text), k.bounds, k.example, ToDefault)
	}
	return k.text(s), nil
}

// Kind is the form that values of a setting have in JSON.
type Kind uint8

// The kinds.
const (
	Number Kind = iota
	Text
	Flag
)

// null is the value in JSON that restores the default.
const null = "null"

// json is a value in JSON.
func (k *scalar) json(text string) json.RawMessage {
	switch {
	case text == ToDefault:
		return json.RawMessage(null)
	case k.kind == Text:
		quoted, _ := json.Marshal(text) // never fails
		return quoted
	}
	return json.RawMessage(text)
}

// Check checks a value in JSON, and returns it as it will be stored. The error is an *InvalidError.
func Check(setting string, value json.RawMessage) (string, error) {
	k, err := find(setting)
	text := string(value)
	switch {
	case err != nil:
		return "", err
	case text == null:
		return ToDefault, nil
	case k.kind == Text && json.Unmarshal(value, &text) != nil:
		text = string(value) // no text is refused
	}
	return k.put(&Settings{}, text)
}

// Object is settings by their names, as JSON has them; those of campaigns are an object for each pause, by the campaign.
type Object map[string]json.RawMessage

// Patch is an Object with changes; null restores a default.
type Patch Object

// PatchOf is the change of one setting to a value as people write it.
func PatchOf(setting, text string) Patch {
	k, err := find(setting)
	value := k.json(text)
	if err != nil || !json.Valid(value) {
		value, _ = json.Marshal(text) // which is refused
	}
	return Patch{setting: value}
}

// Flat is the changes by the names of settings, which those of pauses may have, too: they end with the campaign.
func (p Patch) Flat() Object {
	all := Object{}
	for name, value := range p {
		var of Object
		if !slices.ContainsFunc(pauses, func(p pause) bool { return name+"." == p.prefix }) || json.Unmarshal(value, &of) != nil || of == nil {
			all[name] = value
		}
		for campaign, value := range of {
			all[name+"."+campaign] = value
		}
	}
	return all
}

// Pauses returns the campaign of a setting that is a pause.
func Pauses(setting string) (campaign string, ok bool) {
	k, err := find(setting)
	return k.campaign, err == nil && k.campaign != ""
}

// Description describes a setting for users; CAMPAIGN in its name is a placeholder for a campaign's.
type Description struct {
	Name, About, Bounds, Default string
	Kind                         Kind
	Least, Most                  int    // of a number
	Pause                        string // the member of an Object that has it; empty for other settings
}

// Describe describes all settings, in order.
func Describe() (all []Description) {
	standard := Default()
	for _, k := range scalars {
		all = append(all, Description{k.name, k.about, k.bounds, k.text(standard), k.kind, k.least, k.most, ""})
	}
	for _, p := range pauses {
		all = append(all, Description{p.prefix + "CAMPAIGN", p.about, pauseBounds, "false", Flag, 0, 0, strings.TrimSuffix(p.prefix, ".")})
	}
	return all
}
