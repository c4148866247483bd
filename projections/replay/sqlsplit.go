package replay

import (
	"strings"
)

// statement is one SQL statement with the line of its file that it begins in.
type statement struct {
	sql  string
	line int // from 1
}

// split cuts SQL into statements at the semicolons outside of strings, quoted identifiers, dollar quotes and comments.
// first is the line of the file that text begins in. A cut in the wrong place would be a syntax error, nothing worse:
// each piece is sent by itself, in a way that allows one statement only.
func split(text string, first int) []statement {
	var list []statement
	begin := 0
	add := func(end int) {
		piece := text[begin:end]
		if skip := blankLen(piece); skip < len(piece) {
			at := begin + skip
			list = append(list, statement{sql: strings.TrimSpace(text[at:end]), line: first + strings.Count(text[:at], "\n")})
		}
		begin = end + 1
	}
	for i := 0; i < len(text); {
		if text[i] == ';' {
			add(i)
			i++
			continue
		}
		i += tokenLen(text, i)
	}
	add(len(text))
	return list
}

// blankLen is how much of s, from its beginning, is white space and comments.
func blankLen(s string) int {
	for i := 0; i < len(s); {
		if strings.IndexByte(" \t\r\n\f", s[i]) < 0 && !strings.HasPrefix(s[i:], "--") && !strings.HasPrefix(s[i:], "/*") {
			return i
		}
		i += tokenLen(s, i)
	}
	return len(s)
}

// tokenLen is the length of the token at place i: a whole string or comment, an identifier, or one byte.
func tokenLen(s string, i int) int {
	rest := s[i:]
	upTo := func(end string) int {
		if at := strings.Index(rest[1:], end); at >= 0 {
			return 1 + at + len(end)
		}
		return len(rest)
	}
	switch c := rest[0]; {
	case strings.HasPrefix(rest, "--"):
		return upTo("\n")
	case strings.HasPrefix(rest, "/*"):
		return commentLen(rest)
	case c == '\'' || c == '"':
		return quotedLen(rest, false)
	case (c == 'e' || c == 'E') && strings.HasPrefix(rest[1:], "'"):
		return 1 + quotedLen(rest[1:], true)
	case isLetter(c):
		n := 1
		for n < len(rest) && (isLetter(rest[n]) || rest[n] >= '0' && rest[n] <= '9' || rest[n] == '$') {
			n++
		}
		return n
	case c == '$':
		// $tag$…$tag$, but not $1.
		n := 1
		for n < len(rest) && (isLetter(rest[n]) || n > 1 && rest[n] >= '0' && rest[n] <= '9') {
			n++
		}
		if n < len(rest) && rest[n] == '$' {
			tag := rest[:n+1]
			if end := strings.Index(rest[n+1:], tag); end >= 0 {
				return n + 1 + end + len(tag)
			}
			return len(rest)
		}
	}
	return 1
}

func isLetter(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// quotedLen is the length of a quoted string or identifier; a doubled quote stands for one.
func quotedLen(s string, backslashes bool) int {
	for i := 1; i < len(s); i++ {
		switch {
		case backslashes && s[i] == '\\':
			i++
		case s[i] == s[0] && i+1 < len(s) && s[i+1] == s[0]:
			i++
		case s[i] == s[0]:
			return i + 1
		}
	}
	return len(s)
}

// commentLen is the length of a comment, which may hold others.
func commentLen(s string) int {
	depth := 0
	for i := 0; i+1 < len(s); i++ {
		switch s[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			i++
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(s)
}
