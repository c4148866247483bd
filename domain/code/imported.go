package code

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MinImportedLen and MaxImportedLen bound the characters of an imported code.
const (
	MinImportedLen = 3
	MaxImportedLen = 64
	// MinStrongLen is the fewest symbols of an imported code that is not weak.
	MinStrongLen = 8
)

// ImportError is what is wrong with a code that cannot be imported.
type ImportError struct {
	Code    string // as it was given
	Problem string // a sentence without the code
}

func (e *ImportError) Error() string {
	if e.Code == "" {
		return "imported code " + e.Problem
	}
	return "imported code " + quote(e.Code) + " " + e.Problem
}

// NormalizeImported brings an imported code into the form in which it is kept and shown: trimmed, in upper case, 3 to
// 64 of A-Z 0-9 - _. A code of hyphens alone is refused too, because it folds to nothing (see FoldImported). Normalizing
// twice changes nothing.
func NormalizeImported(s string) (string, error) {
	const allowed = "A-Z, 0-9, - and _"
	s = strings.Trim(s, " \t\r\n")
	if s == "" {
		return "", &ImportError{"", "is empty: give 3 to 64 of " + allowed}
	}
	if n := utf8.RuneCountInString(s); n < MinImportedLen || n > MaxImportedLen {
		return "", &ImportError{s, fmt.Sprintf("has %d characters: give 3 to 64 of %s", n, allowed)}
	}
	hyphens := 0
	for i, r := range s {
		switch {
		case isWord(r):
		case r == '-':
			hyphens++
		case r == ' ':
			return "", &ImportError{s, fmt.Sprintf("has a space at position %d: remove it or write a hyphen", utf8.RuneCountInString(s[:i])+1)}
		default:
			return "", &ImportError{s, fmt.Sprintf("has %q at position %d: use only %s", r, utf8.RuneCountInString(s[:i])+1, allowed)}
		}
	}
	if hyphens == len(s) {
		return "", &ImportError{s, "is only hyphens, which are ignored when a code is typed: add a letter, a digit or _"}
	}
	return mapBytes(s, false), nil
}

// CheckStrong refuses a weak code, one that guessing finds. Hyphens are no symbols. The code is normalised.
func CheckStrong(s string) error {
	if n := len(s) - strings.Count(s, "-"); n < MinStrongLen {
		return &ImportError{s, fmt.Sprintf("has %d symbols, and fewer than %d can be guessed: give longer codes, or allow weak ones", n, MinStrongLen)}
	}
	return nil
}

// FoldImported is the form in which imported codes are compared: upper case, without spaces and hyphens, so that
// "summer 10-ab" finds SUMMER-10AB. An imported code is unique within its campaign in this form: SUMMER-10AB and
// SUMMER10-AB are the same code. Input of more than MaxInputLen bytes folds to the empty string, which no imported code
// folds to.
func FoldImported(s string) string {
	if len(s) > MaxInputLen {
		return ""
	}
	return mapBytes(s, true)
}

// mapBytes is s in upper case, without spaces and hyphens if fold. It returns s itself, without allocating, where
// nothing changes.
func mapBytes(s string, fold bool) string {
	same := func(b byte) bool { return upper(b) == b && !(fold && (b == ' ' || b == '-')) }
	i := 0
	for i < len(s) && same(s[i]) {
		i++
	}
	if i == len(s) {
		return s
	}
	b := make([]byte, i, len(s))
	copy(b, s)
	for ; i < len(s); i++ {
		if fold && (s[i] == ' ' || s[i] == '-') {
			continue
		}
		b = append(b, upper(s[i]))
	}
	return string(b)
}

// quote is s in quotes, cut if it is long.
func quote(s string) string {
	const most = 2 * MaxImportedLen
	if len(s) > most {
		return fmt.Sprintf("%q…", s[:most])
	}
	return fmt.Sprintf("%q", s)
}
