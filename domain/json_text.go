package domain

import (
	"encoding/json"
	"errors"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// unquote returns the value of a raw JSON string.
func unquote(raw []byte) (string, error) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", errors.New("must be a string")
	}
	inner := raw[1 : len(raw)-1]
	for _, c := range inner {
		if c == '\\' {
			var s string
			if err := json.Unmarshal(raw, &s); err != nil {
				return "", errSyntax
			}
			if halfPair(inner) {
				return "", errors.New(`has half a surrogate pair (such as \ud800), which stands for no character`)
			}
			return s, nil
		}
	}
	return string(inner), nil
}

// halfPair reports whether a string (escapes checked) has a \u escape of half a surrogate pair. Package json would read
// U+FFFD, and two ids that differ would be one.
func halfPair(inner []byte) bool {
	unit := func(at int) uint64 {
		if at+6 > len(inner) || inner[at] != '\\' || inner[at+1] != 'u' {
			return 0
		}
		v, _ := strconv.ParseUint(string(inner[at+2:at+6]), 16, 16)
		return v
	}
	for i := 0; i < len(inner); i++ {
		if inner[i] != '\\' {
			continue
		}
		switch u := unit(i); {
		case u >= 0xd800 && u < 0xdc00:
			if low := unit(i + 6); low < 0xdc00 || low > 0xdfff {
				return true
			}
			i += 11
		case u >= 0xdc00 && u < 0xe000:
			return true
		default:
			i++ // over what is escaped, so that it is not taken for an escape itself
		}
	}
	return false
}

// appendText appends s as a JSON string. What is not valid UTF-8 becomes U+FFFD.
func appendText(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	plain := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				dst = append(dst, s[plain:i]...)
				dst = append(dst, "\ufffd"...)
				plain = i + 1
			}
			i += size
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[plain:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		plain = i
	}
	dst = append(dst, s[plain:]...)
	return append(dst, '"')
}

// The field appenders write `,"name":value` and leave fields without value out; the first field of a line is written
// by hand.

func appendStringField(dst []byte, name, v string) []byte {
	if v == "" {
		return dst
	}
	return appendText(appendName(dst, name), v)
}

func appendRawField(dst []byte, name string, v []byte) []byte {
	if len(v) == 0 {
		return dst
	}
	return append(appendName(dst, name), v...)
}

func appendUintField(dst []byte, name string, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return strconv.AppendUint(appendName(dst, name), v, 10)
}

func appendInstantField(dst []byte, name string, v Instant) []byte {
	if v == 0 || v == Never {
		return dst
	}
	dst = append(appendName(dst, name), '"')
	return append(v.append(dst), '"')
}

func appendName(dst []byte, name string) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, name...)
	return append(dst, '"', ':')
}

// printable reports whether s is valid UTF-8 without control or invisible characters.
func printable(s string) bool {
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c < 0x20 || c == 0x7f {
				return false
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 || !unicode.IsPrint(r) {
			return false
		}
		i += size
	}
	return true
}

// texts reads an array of strings.
func texts(raw []byte) (list []string, err error) {
	err = json.Unmarshal(raw, &list)
	return list, err
}
