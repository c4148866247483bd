package main

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// none clears a setting in an update.
const none = "none"

// instant is a time, absolute or from now. With clearable, "none" is the zero instant.
func (m *Main) instant(into *wire.Instant, clearable bool) *cli.Value {
	return &cli.Value{Kind: "TIME", Parse: func(s string) error {
		if clearable && s == none {
			*into = 0
			return nil
		}
		var err error
		*into, err = parseTime(s, m.Now())
		return err
	}}
}

// parseTime reads RFC 3339 or "+10m". The latter is cut to milliseconds, which is easier to read.
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
func rawJSON(into *[]byte) *cli.Value {
	return &cli.Value{Kind: "JSON", Parse: func(s string) error {
		if !json.Valid([]byte(s)) {
			return errors.New(`must be JSON such as {"percent":10}`)
		}
		*into = []byte(s)
		return nil
	}}
}
