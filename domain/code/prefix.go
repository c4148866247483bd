package code

import (
	"fmt"
	"unicode/utf8"
)

// MaxPrefixLen is the most characters of a prefix.
const MaxPrefixLen = 16

// ValidPrefix returns what is wrong with a campaign's prefix, which is 0 to 16 letters, digits and underscores, and is
// written in upper case. It is cosmetic: Decode ignores it, and two campaigns may have the same.
func ValidPrefix(s string) error {
	if n := utf8.RuneCountInString(s); n > MaxPrefixLen {
		return fmt.Errorf("prefix has %d characters: use at most %d", n, MaxPrefixLen)
	}
	for i, r := range s {
		if !isWord(r) {
			return fmt.Errorf("prefix %q has %q at position %d: use only A-Z, 0-9 and _ (the hyphen before the code is added)",
				s, r, utf8.RuneCountInString(s[:i])+1)
		}
	}
	return nil
}

// isWord reports whether r is an ASCII letter, a digit or an underscore.
func isWord(r rune) bool {
	return 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '_'
}
