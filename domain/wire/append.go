package wire

import (
	"math/bits"
	"strconv"
	"unicode/utf8"

	"github.com/seed-4a2410e3/scrip/domain/code"
)

// AppendText appends s as a JSON string. Bytes that are not valid UTF-8 become U+FFFD.
func AppendText(dst []byte, s string) []byte {
	dst = append(dst, '"')
	if i := special(s); i < len(s) {
		return append(appendEscaped(append(dst, s[:i]...), s[i:]), '"')
	}
	return append(append(dst, s...), '"')
}

// special returns the index of the first byte of s that is not plain ASCII; len(s) if there is none.
func special(s string) int {
	if len(s) < 8 {
		for i := range len(s) {
			if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
				return i
			}
		}
		return len(s)
	}
	for i := 0; ; i += 8 {
		i = min(i, len(s)-8) // the last word overlaps the one before
		w := word(s, i)
		if m := marked(w) | w&tops; m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
		if i == len(s)-8 {
			return len(s)
		}
	}
}

// appendEscaped appends s with the escapes of a JSON string.
func appendEscaped(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
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
	return append(dst, s[plain:]...)
}

// The field appenders append a field after others: the key is given with its comma, `,"name":`. They leave out a field
// without value.

func appendStringField(dst []byte, key, v string) []byte {
	if v == "" {
		return dst
	}
	return AppendText(append(dst, key...), v)
}

func appendRawField(dst []byte, key string, v []byte) []byte {
	if len(v) == 0 {
		return dst
	}
	return append(append(dst, key...), v...)
}

func appendUintField(dst []byte, key string, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return strconv.AppendUint(append(dst, key...), v, 10)
}

func appendInstantField(dst []byte, key string, v Instant) []byte {
	if v == 0 || v == Never {
		return dst
	}
	dst = append(append(dst, key...), '"')
	return append(v.Append(dst), '"')
}

// LineCache holds the texts of the two instants written last: nearly all lines of a step have the same two, its own time and
// the end of their campaign. It also records where the code of a line begins. A nil cache is empty.
type LineCache struct {
	known [2]struct {
		at   Instant
		text [len(stampForm)]byte
		size int
	}
	older  int // which of them is older
	CodeAt int // offset of the code in the line written last, without prefix; 0 = it has none
}

// codeField writes a code as appendStringField does.
func (s *LineCache) codeField(dst []byte, v string) []byte {
	dst = appendStringField(dst, `,"code":`, v)
	if s != nil && v != "" {
		s.CodeAt = len(dst) - len(`"`) - min(len(v), code.Symbols+2)
	}
	return dst
}

// field writes an instant as appendInstantField does.
func (s *LineCache) field(dst []byte, key string, v Instant) []byte {
	if s == nil || v == 0 || v == Never {
		return appendInstantField(dst, key, v)
	}
	k := &s.known[0]
	if k.at != v {
		if k = &s.known[1]; k.at != v {
			k = &s.known[s.older]
			s.older ^= 1
			k.at, k.size = v, len(v.Append(k.text[:0]))
		}
	}
	dst = append(append(dst, key...), '"')
	return append(append(dst, k.text[:k.size]...), '"')
}

func appendNumber(dst []byte, v uint64) []byte { return strconv.AppendUint(dst, v, 10) }

func appendTextsField(dst []byte, key string, vs []string) []byte {
	if len(vs) == 0 {
		return dst
	}
	dst = append(append(dst, key...), '[')
	for i, v := range vs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendText(dst, v)
	}
	return append(dst, ']')
}
