package eventlog

import (
	"bytes"
	"iter"
)

// Lines iterates over the lines of a payload, numbered from 0, without their newline and without copying. The last line may
// lack its newline; empty lines are omitted but counted, so that a line's number is its index in the message.
func Lines(payload []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for n := 0; len(payload) > 0; n++ {
			line := payload
			if i := bytes.IndexByte(payload, '\n'); i >= 0 {
				line, payload = payload[:i], payload[i+1:]
			} else {
				payload = nil
			}
			if len(line) > 0 && !yield(n, line) {
				return
			}
		}
	}
}
