package confine

import "strings"

// Sooner is the guard, for a superuser, with other bounds, such as "5min" by "1ms".
func Sooner(bounds ...string) string {
	return strings.NewReplacer(bounds...).Replace(filled(guardSQL, true, "$1::jsonb", "$2::boolean"))
}

// Kept are the functions that everybody may execute.
func Kept() []string { return kept() }
