package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// Value is a flag that Parse reads; its errors describe the valid values.
type Value struct {
	// Text is the current value, Kind its placeholder in help.
	Text, Kind string
	Parse      func(string) error
}

var _ pflag.Value = (*Value)(nil)

// String is described at pflag.Value.
func (v *Value) String() string { return v.Text }

// Type is described at pflag.Value.
func (v *Value) Type() string { return v.Kind }

// Set is described at pflag.Value.
func (v *Value) Set(s string) error {
	if err := v.Parse(s); err != nil {
		return err
	}
	v.Text = s
	return nil
}

// Choice is one of a few texts.
func Choice(into *string, preset string, options ...string) *Value {
	*into = preset
	return &Value{Text: preset, Kind: strings.Join(options, "|"), Parse: func(s string) error {
		if !slices.Contains(options, s) {
			return fmt.Errorf("must be %s", strings.Join(options, " or "))
		}
		*into = s
		return nil
	}}
}

// Number is a whole number from least to most.
func Number(into *uint32, preset, least, most uint32) *Value {
	*into = preset
	text := ""
	if preset != 0 {
		text = strconv.FormatUint(uint64(preset), 10)
	}
	return &Value{Text: text, Kind: "N", Parse: func(s string) error {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil || n < uint64(least) || n > uint64(most) {
			return fmt.Errorf("must be a whole number from %d to %d", least, most)
		}
		*into = uint32(n)
		return nil
	}}
}

// Duration is a Go duration from least to most.
func Duration(into *time.Duration, preset, least, most time.Duration) *Value {
	*into = preset
	text := ""
	if preset != 0 {
		text = preset.String()
	}
	return &Value{Text: text, Kind: "DURATION", Parse: func(s string) error {
		d, err := time.ParseDuration(s)
		if err != nil {
			return errors.New("must be a duration such as 90s, 1m or 72h")
		}
		if d < least || d > most {
			return fmt.Errorf("must be between %s and %s", least, most)
		}
		*into = d
		return nil
	}}
}

// ParseTime reads RFC 3339, or a time from now such as +10m and -24h, which is cut to milliseconds: that is easier to read.
func ParseTime(s string, now time.Time) (wire.Instant, error) {
	wrong := errors.New("must be an RFC 3339 time such as 2026-11-27T00:00:00Z, or a time from now such as +10m or -24h")
	if s != "" && (s[0] == '+' || s[0] == '-') {
		d, err := time.ParseDuration(s)
		if err != nil {
			return 0, wrong
		}
		return wire.At(now.Truncate(time.Millisecond)).Add(d), nil
	}
	if _, err := time.Parse(time.RFC3339Nano, s); err != nil {
		return 0, wrong
	}
	return wire.ParseInstant(s)
}
