package settings

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// ToDefault is the value that restores a setting's default.
const ToDefault = "default"

// InvalidError is the error of a value that a setting cannot have, or of a setting that does not exist. Its text names the
// setting, the bounds, and an example.
type InvalidError struct {
	Setting, Value string
	Problem        string
}

func (e *InvalidError) Error() string { return e.Problem }

// scalar is a setting with one value. Values are stored as text.
type scalar struct {
	name, about string
	bounds      string // in words
	example     string
	// parse reads a value into s. It does not check its bounds; check does.
	parse func(s *Settings, text string) bool
	text  func(s *Settings) string
	// check returns what is wrong with the value in s, "" if nothing.
	check func(s *Settings) string
}

// scalars in the order in which they are shown.
var scalars = []scalar{
	number("reminder.batch", "customers in one message on a reminder stream at most", 1, 500, "200", func(s *Settings) *int { return &s.ReminderBatch }),
	number("reminder.rate", "messages a second on the reminder stream of each lane, 0 = no limit", 0, 1_000_000, "2000", func(s *Settings) *int { return &s.ReminderRate }),
	number("reminder.concurrency", "messages of a lane's fan-out in flight at once, on a log of one copy; with replicas one message is in flight at a time", 1, 64, "16", func(s *Settings) *int { return &s.ReminderConcurrency }),
	period("reminder.grace", "how late a reminder may still fire although what it announces has passed", time.Second, 8760*time.Hour, "15m", func(s *Settings) *time.Duration { return &s.ReminderGrace }),
	number("deadletter.quote", "bytes of a bad line that its dead letter quotes at most, for good; they may hold personal data", 0, domain.MaxQuoted, "0", func(s *Settings) *int { return &s.DeadLetterQuote }),
	period("clock.tolerance", "how far ahead a clock may be before lanes wait: the machine's, set in one step, or the one that stamps commands", time.Second, 8760*time.Hour, "24h", func(s *Settings) *time.Duration { return &s.ClockTolerance }),
	moment("clock.accepted", "when an operator last checked that the clocks of the machines are right: a step ahead that was noticed before then is followed", now, func(s *Settings) *time.Time { return &s.ClockAccepted }),
}

// never is the text of a moment that is not set, now that of the present one.
const (
	never = "never"
	now   = "now"
)

// moment is a time. Check replaces now by the time of the call.
func moment(name, about, example string, field func(*Settings) *time.Time) scalar {
	return scalar{
		name: name, about: about, bounds: "now, never or a time as in RFC 3339", example: example,
		parse: func(s *Settings, text string) (ok bool) {
			switch text {
			case never:
				*field(s) = time.Time{}
				return true
			case now:
				*field(s) = time.Now().UTC()
				return true
			}
			at, err := time.Parse(time.RFC3339Nano, text)
			*field(s) = at.UTC()
			return err == nil
		},
		text: func(s *Settings) string {
			if at := *field(s); !at.IsZero() {
				return at.Format(time.RFC3339Nano)
			}
			return never
		},
		check: func(*Settings) string { return "" },
	}
}

func number(name, about string, least, most int, example string, field func(*Settings) *int) scalar {
	bounds := fmt.Sprintf("a whole number from %d to %d", least, most)
	return scalar{
		name: name, about: about, bounds: bounds, example: example,
		parse: func(s *Settings, text string) bool {
			n, err := strconv.ParseInt(text, 10, 32)
			*field(s) = int(n)
			return err == nil
		},
		text: func(s *Settings) string { return strconv.Itoa(*field(s)) },
		check: func(s *Settings) string {
			if n := *field(s); n < least || n > most {
				return "expected " + bounds
			}
			return ""
		},
	}
}

func period(name, about string, least, most time.Duration, example string, field func(*Settings) *time.Duration) scalar {
	bounds := fmt.Sprintf("a duration from %s to %s", shortly(least), shortly(most))
	return scalar{
		name: name, about: about, bounds: bounds, example: example,
		parse: func(s *Settings, text string) bool {
			d, err := time.ParseDuration(text)
			*field(s) = d
			return err == nil
		},
		text: func(s *Settings) string { return field(s).String() },
		check: func(s *Settings) string {
			if d := *field(s); d < least || d > most {
				return "expected " + bounds
			}
			return ""
		},
	}
}

// shortly omits the zeros: 8760h0m0s is 8760h.
func shortly(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
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

// key is a setting by its name: a scalar, or the pause of a campaign.
type key struct {
	name     string
	scalar   *scalar
	pause    *pause
	campaign string
}

// find finds a setting. The error is an *InvalidError.
func find(name string) (key, error) {
	for i := range scalars {
		if scalars[i].name == name {
			return key{name: name, scalar: &scalars[i]}, nil
		}
	}
	for i := range pauses {
		campaign, ok := strings.CutPrefix(name, pauses[i].prefix)
		if !ok {
			continue
		}
		if !wire.ValidCampaignName(campaign) {
			return key{}, &InvalidError{Setting: name, Problem: fmt.Sprintf("setting %s: %s is no name of a campaign; give 1 to 64 letters, digits, _ and - after %s", quote(name), quote(campaign), pauses[i].prefix)}
		}
		return key{name: name, pause: &pauses[i], campaign: campaign}, nil
	}
	hint := "; "
	if near := nearest(name); near != "" {
		hint = fmt.Sprintf("; did you mean %s? ", near)
	}
	return key{}, &InvalidError{Setting: name, Problem: fmt.Sprintf("there is no setting %s%sthe settings are %s", quote(name), hint, strings.Join(Names(), ", "))}
}

// put reads a value into s, which must not be shared, and returns it in its stored form.
func (k key) put(s *Settings, text string) (string, error) {
	if k.pause != nil {
		paused := text == "true"
		if !paused && text != "false" {
			return "", k.invalid(text, pauseBounds, "true")
		}
		k.setPause(s, paused)
		return text, nil
	}
	if !k.scalar.parse(s, text) || k.scalar.check(s) != "" {
		return "", k.invalid(text, k.scalar.bounds, k.scalar.example)
	}
	return k.scalar.text(s), nil
}

func (k key) invalid(text, bounds, example string) error {
	return &InvalidError{Setting: k.name, Value: text,
		Problem: fmt.Sprintf("%s can not be %s: it must be %s, such as %s, or %s", k.name, quote(text), bounds, example, ToDefault)}
}

func (k key) setPause(s *Settings, paused bool) {
	field := k.pause.field(s)
	switch {
	case !paused:
		delete(*field, k.campaign)
	case *field == nil:
		*field = map[string]bool{k.campaign: true}
	default:
		(*field)[k.campaign] = true
	}
}

// text returns the value in force.
func (k key) text(s *Settings) string {
	if k.pause != nil {
		return strconv.FormatBool((*k.pause.field(s))[k.campaign])
	}
	return k.scalar.text(s)
}

// Check checks that a setting exists and can have a value, and returns the value in its stored form. The error is an
// *InvalidError.
func Check(setting, value string) (string, error) {
	k, err := find(setting)
	if err != nil || value == ToDefault {
		return value, err
	}
	return k.put(&Settings{}, value)
}

// CheckName checks that a setting exists. The error is an *InvalidError.
func CheckName(setting string) error {
	_, err := find(setting)
	return err
}

// Pauses returns the campaign of a setting that is a pause.
func Pauses(setting string) (campaign string, ok bool) {
	k, err := find(setting)
	return k.campaign, err == nil && k.pause != nil
}

const anyCampaign = "CAMPAIGN"

// Names returns the names of all settings; CAMPAIGN is a placeholder for a campaign's name.
func Names() (names []string) {
	for _, d := range Describe() {
		names = append(names, d.Name)
	}
	return names
}

// Description describes a setting for users.
type Description struct{ Name, About, Bounds, Default string }

// Describe describes all settings, in order.
func Describe() (all []Description) {
	standard := Default()
	for _, k := range scalars {
		all = append(all, Description{k.name, k.about, k.bounds, shortDefault(k.text(standard))})
	}
	for _, p := range pauses {
		all = append(all, Description{p.prefix + anyCampaign, p.about, pauseBounds, "false"})
	}
	return all
}

func shortDefault(text string) string {
	if d, err := time.ParseDuration(text); err == nil && d != 0 {
		return shortly(d)
	}
	return text
}

// nearest returns the setting whose name differs by few letters from the typed one, "" if none does.
func nearest(typed string) string {
	const most = 3 // letters; more would be a guess
	best, at := "", most+1
	consider := func(name, shown string) {
		if d := distance(typed, name); d < at {
			best, at = shown, d
		}
	}
	if len(typed) > 128 {
		return ""
	}
	for _, k := range scalars {
		consider(k.name, k.name)
	}
	for _, p := range pauses {
		// The part after the last dot is a campaign's name.
		campaign := typed[strings.LastIndexByte(typed, '.')+1:]
		if wire.ValidCampaignName(campaign) {
			consider(p.prefix+campaign, p.prefix+campaign)
		}
		consider(strings.TrimSuffix(p.prefix, "."), p.prefix+anyCampaign)
	}
	return best
}

// distance counts the letters to insert, remove or replace to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal, row[j+1] = row[j+1], min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// quote quotes a text that may contain anything, and cuts it.
func quote(s string) string {
	const most = 60
	if len(s) > most {
		return strconv.QuoteToASCII(strings.ToValidUTF8(s[:most], "")) + "…"
	}
	return strconv.QuoteToASCII(s)
}
