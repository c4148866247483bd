package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/bits"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
	"unsafe"

	"github.com/seed-4a2410e3/scrip/domain/code"
)

// View is b as a string without a copy: it is valid until b is written. Lines are read this way, so what a lane keeps of a line
// is cloned where it is kept: a campaign's name and settings, and the names of refused campaigns. All else is kept as hashes.
func View(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// unquote returns the value of a raw JSON string, as a view of raw where there are no escapes in it.
func unquote(raw []byte) (string, error) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", errNotString
	}
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return View(inner), nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", errSyntax
	}
	if halfPair(inner) {
		return "", errors.New(`has half a surrogate pair (such as \ud800), which is no character`)
	}
	return s, nil
}

var errNotString = errors.New("must be a string")

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
			i++ // skips the escaped character, which may be a backslash
		}
	}
	return false
}

// Eight bytes are compared as one word: a byte is below 0x20, or equal to another byte, where a subtraction borrows into its
// top bit. Only the lowest such bit is exact, and only that one is used.
const (
	ones = 0x0101010101010101
	tops = 0x80 * ones
)

func word[T ~string | ~[]byte](s T, i int) uint64 {
	_ = s[i+7]
	return uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
		uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
}

// marked has the top bit of the first byte set that ends plain JSON text: a quote, a backslash, a control character.
func marked(w uint64) uint64 {
	quote, slash := w^'"'*ones, w^'\\'*ones
	return ((w-0x20*ones)&^w | (quote-ones)&^quote | (slash-ones)&^slash) & tops
}

// plain returns the index, from i on, of the first byte of s that JSON text must escape; len(s) if there is
// none. Bytes of other characters than ASCII are passed over.
func plain[T ~string | ~[]byte](s T, i int) int {
	for ; i+8 <= len(s); i += 8 {
		if m := marked(word(s, i)); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	for ; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' {
			break
		}
	}
	return i
}

// simple reports whether a line is printable ASCII without backslashes, as nearly all are: its strings have no escapes and need
// no checks of their own.
func simple(line []byte) bool {
	if len(line) < 8 {
		return false
	}
	for i := 0; ; i += 8 {
		i = min(i, len(line)-8)
		w := word(line, i)
		slash, del := w^'\\'*ones, w^0x7f*ones
		if ((w-0x20*ones)|(slash-ones)&^slash|(del-ones)&^del|w)&tops != 0 {
			return false
		}
		if i == len(line)-8 {
			return true
		}
	}
}

// Shorten cuts s to at most n bytes for a message.
func Shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// Quote is s in quotes for a message, cut if it is long.
func Quote(s string) string {
	const most = 128
	if len(s) > most {
		return strconv.Quote(strings.ToValidUTF8(s[:most], "")) + "…"
	}
	return strconv.Quote(s)
}

// OneLine is s with one space for each run of white space, and without bytes that are not UTF-8.
func OneLine(s string) string { return strings.ToValidUTF8(strings.Join(strings.Fields(s), " "), "") }

// Printable reports whether s is valid UTF-8 without control or invisible characters.
func Printable(s string) bool {
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
// the end of their campaign. It also records where the code of a line is. A nil cache is empty.
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

// appendListField appends a field with an array, each value by the function; no values are no field.
func appendListField[V any](dst []byte, key string, vs []V, value func([]byte, V) []byte) []byte {
	if len(vs) == 0 {
		return dst
	}
	dst = append(append(dst, key...), '[')
	for i, v := range vs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = value(dst, v)
	}
	return append(dst, ']')
}
