package replay

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"unicode/utf8"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// The functions in this file change a line that wire.ParseEvent has accepted, so it is one JSON object.

// AppendPositioned appends an event as one NDJSON line of a replay, without the newline: the line with its position in front,
// {"lane":0,"sequence":12,"line":1,"type":…. The rest is copied unchanged. A command.rejected has a sequence and a line of its
// own, those of the command; they are renamed command_sequence and command_line, like the columns.
func (e *Event) AppendPositioned(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"lane":`...), int64(e.Lane), 10)
	dst = strconv.AppendUint(append(dst, `,"sequence":`...), e.Position.Sequence, 10)
	dst = strconv.AppendInt(append(dst, `,"line":`...), int64(e.Position.Line), 10)
	if e.Type != wire.CommandRejected {
		return append(append(dst, ','), bytes.TrimSpace(e.Raw)[1:]...)
	}
	fields := json.NewDecoder(bytes.NewReader(e.Raw))
	_, _ = fields.Token() // {
	for fields.More() {
		name, _ := fields.Token()
		var value json.RawMessage
		if fields.Decode(&value) != nil {
			break // not after ParseEvent
		}
		if name == "sequence" || name == "line" {
			name = "command_" + name.(string)
		}
		quoted, _ := json.Marshal(name)
		dst = append(append(append(append(dst, ','), quoted...), ':'), value...)
	}
	return append(dst, '}')
}

// escapes are the escapes in JSON: a surrogate pair, what jsonb rejects (U+0000, half a pair), any other. JSON has backslashes in
// texts only.
var escapes = regexp.MustCompile(`\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u0000|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\.`)

// storable returns a line that PostgreSQL's jsonb accepts: \u0000 and halves of surrogate pairs, which JSON allows, are replaced by
// \ufffd. Numbers that it rejects are refused by lanes. Nearly every line is returned unchanged.
func storable(line []byte) []byte {
	if !utf8.Valid(line) {
		line = bytes.ToValidUTF8(line, []byte("\uFFFD"))
	}
	if !bytes.Contains(line, []byte(`\u`)) {
		return line
	}
	return escapes.ReplaceAllFunc(line, func(escape []byte) []byte {
		if len(escape) == len(`\uFFFF`) { // a pair is longer, another escape shorter
			return []byte(`\ufffd`)
		}
		return escape
	})
}
