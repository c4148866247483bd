package replay

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// The functions in this file change a line that wire.ParseEvent has accepted, so it is one JSON object.

// AppendPositioned appends an event as one NDJSON line of a replay, without the newline.
func (e *Event) AppendPositioned(dst []byte) []byte {
	return appendWithPosition(dst, e, e.Type == wire.CommandRejected)
}

// appendWithPosition appends a line with its position in front: {"lane":0,"sequence":12,"line":1,"type":…. The rest is
// copied unchanged. A command.rejected has a sequence and a line of its own, those of the command; they are renamed
// command_sequence and command_line, like the columns.
func appendWithPosition(dst []byte, e *Event, rejected bool) []byte {
	dst = strconv.AppendInt(append(dst, `{"lane":`...), int64(e.Lane), 10)
	dst = strconv.AppendUint(append(dst, `,"sequence":`...), e.Position.Sequence, 10)
	dst = strconv.AppendInt(append(dst, `,"line":`...), int64(e.Position.Line), 10)
	dst = append(dst, ',')
	rest := bytes.TrimSpace(e.Raw)[1:]
	if !rejected {
		return append(dst, rest...)
	}
	depth, key := 1, true
	for i := 0; i < len(rest); {
		switch c := rest[i]; c {
		case '"':
			end := i + textLen(rest[i:])
			text := rest[i:end]
			if depth == 1 && key && (string(text) == `"sequence"` || string(text) == `"line"`) {
				dst = append(append(dst, `"command_`...), text[1:]...)
			} else {
				dst = append(dst, text...)
			}
			key = false
			i = end
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',':
			key = depth == 1
		}
		dst = append(dst, rest[i])
		i++
	}
	return dst
}

// textLen returns the length of the JSON string at the beginning of s, quotes included.
func textLen(s []byte) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(s)
}

// storable returns a line that PostgreSQL's jsonb accepts. jsonb rejects two things that JSON allows: \u0000 and halves of
// surrogate pairs, which are replaced by \ufffd. Numbers that it rejects are refused by lanes. Nearly every line is returned
// unchanged.
func storable(line []byte) []byte {
	if !utf8.Valid(line) {
		line = bytes.ToValidUTF8(line, []byte("\uFFFD"))
	}
	if !bytes.Contains(line, []byte(`\u`)) {
		return line
	}
	return appendStorableText(make([]byte, 0, len(line)+16), line)
}

// appendStorableText appends a line; \u is an escape, as JSON has backslashes in texts only.
func appendStorableText(dst, text []byte) []byte {
	for i := 0; i < len(text); {
		if text[i] != '\\' || i+1 >= len(text) {
			dst = append(dst, text[i])
			i++
			continue
		}
		unit, ok := escape(text[i:])
		switch {
		case !ok:
			dst = append(dst, text[i:i+2]...)
			i += 2
			continue
		case unit >= 0xD800 && unit < 0xDC00:
			if low, paired := escape(text[i+6:]); paired && low >= 0xDC00 && low < 0xE000 {
				dst = append(dst, text[i:i+12]...)
				i += 12
				continue
			}
			fallthrough
		case unit == 0, unit >= 0xDC00 && unit < 0xE000:
			dst = append(dst, `\ufffd`...)
		default:
			dst = append(dst, text[i:i+6]...)
		}
		i += 6
	}
	return dst
}

// escape parses \uXXXX at the beginning of s.
func escape(s []byte) (unit uint64, ok bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(s[2:6]), 16, 32)
	return unit, err == nil
}
