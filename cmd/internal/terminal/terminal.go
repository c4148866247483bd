// Package terminal shows people texts that anybody may have written: what a server answers, what a dead letter quotes,
// what stands in a header. A terminal obeys some characters; none of them gets there.
//
//	text of whoever ──Line──> a column   "a\x1b[2Jb\nc" becomes "a?[2Jb c"
//	                └─Text──> a page     lines stay lines
//
// JSON is for programs and is not touched. It has no state; nothing crashes here.
package terminal

import (
	"strings"
	"unicode"
)

// Line is a text on one line: white space is a space, what can not be printed (escapes, direction marks, bytes that are
// no UTF-8) a question mark.
func Line(s string) string { return clean(s, ' ') }

// Text is Line, but the ends of lines stay.
func Text(s string) string { return clean(s, '\n') }

func clean(s string, newline rune) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return newline
		case r == '\t', r == '\r':
			return ' '
		case !unicode.IsPrint(r) || r == unicode.ReplacementChar:
			return '?'
		}
		return r
	}, s)
}
