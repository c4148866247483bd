package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// value is a flag whose text is understood by set; errors say what would be right.
type value struct {
	text, kind string
	set        func(string) error
}

var _ pflag.Value = (*value)(nil)

func (v *value) String() string { return v.text }
func (v *value) Type() string   { return v.kind }
func (v *value) Set(s string) error {
	if err := v.set(s); err != nil {
		return err
	}
	v.text = s
	return nil
}

// choice is one of a few words.
func choice(into *string, preset string, words ...string) *value {
	*into = preset
	return &value{text: preset, kind: strings.Join(words, "|"), set: func(s string) error {
		if !slices.Contains(words, s) {
			return fmt.Errorf("must be %s", strings.Join(words, " or "))
		}
		*into = s
		return nil
	}}
}

// number is a whole number from least to most.
func number(into *uint32, preset, least, most uint32) *value {
	*into = preset
	text := ""
	if preset != 0 {
		text = strconv.FormatUint(uint64(preset), 10)
	}
	return &value{text: text, kind: "N", set: func(s string) error {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil || n < uint64(least) || n > uint64(most) {
			return fmt.Errorf("must be a whole number from %d to %d", least, most)
		}
		*into = uint32(n)
		return nil
	}}
}

// duration is a Go duration from least to most.
func duration(into *time.Duration, preset, least, most time.Duration) *value {
	*into = preset
	text := ""
	if preset != 0 {
		text = preset.String()
	}
	return &value{text: text, kind: "DURATION", set: func(s string) error {
		d, err := time.ParseDuration(s)
		if err != nil {
			return errors.New("must be a duration such as 90s, 1m or 72h")
		}
		if d < least || d > most {
			return fmt.Errorf("must lie between %s and %s", least, most)
		}
		*into = d
		return nil
	}}
}

// none takes back a setting in an update.
const none = "none"

// instant is a time, absolute or from now. With clearable, "none" is the time that is none.
func (m *Main) instant(into *wire.Instant, clearable bool) *value {
	return &value{kind: "TIME", set: func(s string) error {
		if clearable && s == none {
			*into = 0
			return nil
		}
		var err error
		*into, err = parseTime(s, m.Now())
		return err
	}}
}

// parseTime reads RFC 3339 or "+10m". The latter is cut to milliseconds: nobody types more, and it reads better.
func parseTime(s string, now time.Time) (wire.Instant, error) {
	wrong := errors.New("must be an RFC 3339 time such as 2026-11-27T00:00:00Z, or a time from now such as +10m")
	if ahead, relative := strings.CutPrefix(s, "+"); relative {
		d, err := time.ParseDuration(ahead)
		if err != nil || d < 0 || strings.HasPrefix(ahead, "+") {
			return 0, wrong
		}
		return wire.At(now.Truncate(time.Millisecond)).Add(d), nil
	}
	if _, err := time.Parse(time.RFC3339Nano, s); err != nil {
		return 0, wrong
	}
	return wire.ParseInstant(s)
}

// rawJSON is a JSON text.
func rawJSON(into *[]byte) *value {
	return &value{kind: "JSON", set: func(s string) error {
		if !json.Valid([]byte(s)) {
			return errors.New(`must be JSON such as {"percent":10}`)
		}
		*into = []byte(s)
		return nil
	}}
}
