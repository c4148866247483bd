package console

import (
	"strconv"
	"strings"
	"time"
)

// instant reads an instant that a person typed: RFC 3339, a date with or without a time, or +90m from now. zone is the offset
// of the browser's zone in minutes, for one that is typed without a zone; "" = UTC. wrong is why it is none.
func instant(text, zone string) (at time.Time, wrong string) {
	if rest, ok := strings.CutPrefix(text, "+"); ok {
		days := time.Duration(0)
		if n, after, ok := strings.Cut(rest, "d"); ok {
			if count, err := strconv.Atoi(n); err == nil {
				days, rest = time.Duration(count)*24*time.Hour, after
			}
		}
		d, err := time.ParseDuration(rest)
		if err == nil || rest == "" && days > 0 {
			return time.Now().UTC().Add(days + d).Truncate(time.Second), ""
		}
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.UTC(), ""
	}
	in := time.UTC
	if minutes, err := strconv.Atoi(zone); err == nil {
		in = time.FixedZone("", minutes*60)
	}
	text = strings.TrimSuffix(strings.Replace(text, "T", " ", 1), " UTC")
	for _, layout := range []string{time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, in); err == nil {
			return t.UTC(), ""
		}
	}
	return at, "must be an instant such as 2026-11-27 00:00, 2026-11-27T00:00:00+01:00 or +90m"
}
