package deadletter

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// ID identifies a dead letter by the position of the line: SCRIP_CMD_0/12/3. If a command stream was created again and
// several have this position, that of the event is added: SCRIP_CMD_0/12/3@57/1.
type ID struct {
	Stream   string
	Sequence uint64
	Line     uint32
	// EventSequence and EventLine are 0 if they are not needed.
	EventSequence uint64
	EventLine     uint32

	lane int
}

func (id ID) String() string {
	s := fmt.Sprintf("%s/%d/%d", id.Stream, id.Sequence, id.Line)
	if id.EventSequence != 0 {
		s += fmt.Sprintf("@%d/%d", id.EventSequence, id.EventLine)
	}
	return s
}

// MarshalText returns String.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// ParseID parses the result of String.
func ParseID(s string) (id ID, err error) {
	wrong := fmt.Errorf("%q is not the id of a dead letter; ids are like %s/12/3, as `scrip deadletter list` shows them", s, topology.CmdStream(0))
	name, event, exact := strings.Cut(s, "@")
	parts := strings.Split(name, "/")
	if len(parts) != 3 {
		return id, wrong
	}
	id.Stream = parts[0]
	number, command := strings.CutPrefix(id.Stream, topology.CmdStreamPrefix)
	if !command {
		var isEvent bool
		if number, isEvent = strings.CutPrefix(id.Stream, topology.EvtStreamPrefix); !isEvent {
			return id, wrong
		}
	}
	lane, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return id, wrong
	}
	id.lane = int(lane)
	place := func(sequence, line string, into *uint64, intoLine *uint32) bool {
		a, err1 := strconv.ParseUint(sequence, 10, 63)
		b, err2 := strconv.ParseUint(line, 10, 32)
		*into, *intoLine = a, uint32(b)
		return err1 == nil && err2 == nil && a > 0
	}
	if !place(parts[1], parts[2], &id.Sequence, &id.Line) {
		return id, wrong
	}
	if exact {
		sequence, line, _ := strings.Cut(event, "/")
		if !place(sequence, line, &id.EventSequence, &id.EventLine) {
			return id, wrong
		}
	}
	return id, nil
}
