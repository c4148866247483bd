package domain

import (
	"bytes"
)

// lineReader finds the lines of a message that are not empty.
type lineReader struct {
	rest   []byte
	number uint32
}

func (r *lineReader) next() (line []byte, ok bool) {
	for len(r.rest) > 0 {
		if end := bytes.IndexByte(r.rest, '\n'); end >= 0 {
			line, r.rest = r.rest[:end], r.rest[end+1:]
		} else {
			line, r.rest = r.rest, nil
		}
		r.number++
		if !blank(line) {
			return line, true
		}
	}
	return nil, false
}

// read reads the next few lines and prepares their commands.
func (s *Step) read(m Message, in *lineReader) []commandLine {
	x := &s.lane.scratch
	n := 0
	for ; n < len(x.lines); n++ {
		text, ok := in.next()
		if !ok {
			break
		}
		l := &x.lines[n]
		l.text, l.number = text, in.number
		l.problem = l.cmd.parse(text, Defaults{Campaign: m.Campaign})
		x.prepared[n] = prepared{cmd: &l.cmd}
	}
	s.lane.prepare(x.prepared[:n])
	return x.lines[:n]
}
