package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
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
