package durable

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// call is a system call on a file or socket. Order is that of the trace: one tracer saw all threads.
type call struct {
	name       string
	file       string // path, or TCP:[from->to]
	text       string // arguments, as strace writes them
	start, end int    // lines of the trace; end 0 = never returned
	failed     bool
}

var (
	traceLine = regexp.MustCompile(`^(\d+) +[\d.:]+ (.*)$`)
	resumed   = regexp.MustCompile(`^<\.\.\. (\w+) resumed>(.*)$`)
	vectors   = regexp.MustCompile(`", iov_len=\d+}, {iov_base="`)
	started   = regexp.MustCompile(`^(\w+)\(\d+<(.*?)>(?:[,)]| <unfinished)`)
)

// parseTrace reads what strace -f -ttt -yy wrote.
func parseTrace(trace string) []*call {
	var calls []*call
	open := map[string]*call{} // by thread
	for i, line := range strings.Split(trace, "\n") {
		m := traceLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		thread, rest := m[1], m[2]
		c := open[thread]
		if r := resumed.FindStringSubmatch(rest); r != nil {
			if c == nil {
				continue
			}
			c.text += r[2]
		} else if b := started.FindStringSubmatch(rest); b != nil {
			c = &call{name: b[1], file: b[2], text: rest, start: i + 1}
			calls = append(calls, c)
		} else {
			continue // a signal, an exit, a call on no file
		}
		if strings.HasSuffix(rest, "<unfinished ...>") {
			open[thread] = c
			continue
		}
		delete(open, thread)
		c.end = i + 1
		c.text = vectors.ReplaceAllString(c.text, "") // one write in parts is one write
		c.failed = regexp.MustCompile(`\) += -1 `).MatchString(c.text)
	}
	return calls
}

// onDisk checks that what was stored in a stream was fsynced before it was sent: a write of the stream's file
// that holds stored, then an fsync of that file that started after it and ended, then the first socket write that holds sent.
func onDisk(calls []*call, stream, stored, sent string) error {
	var write, sync, answer *call
	tails := map[string]string{} // the end of what was written last, by socket: a line may be cut between two calls
	for _, c := range calls {
		socket := strings.HasPrefix(c.file, "TCP")
		if socket && answer == nil {
			_, text, _ := strings.Cut(c.text, `"`)
			text = tails[c.file] + text[:max(0, strings.LastIndexByte(text, '"'))]
			tails[c.file] = text[max(0, len(text)-len(sent)):]
			if strings.Contains(text, sent) {
				answer = c
			}
		}
		switch {
		case socket || !strings.Contains(c.file, "/"+stream+"/msgs/"):
		case write == nil && strings.Contains(c.name, "write") && strings.Contains(c.text, stored):
			write = c
		case sync == nil && write != nil && strings.HasSuffix(c.name, "sync") && c.file == write.file && c.start > write.end && !c.failed:
			sync = c
		}
	}
	switch {
	case write == nil:
		return fmt.Errorf("no write of %q to %s", stored, stream)
	case answer == nil:
		return fmt.Errorf("%q was never sent", sent)
	case write.end == 0 || write.failed:
		return fmt.Errorf("line %d: the write of %q to %s failed", write.start, stored, stream)
	case sync == nil || sync.end == 0:
		return fmt.Errorf("%q is written in line %d and sent in line %d, and %s was never synced", stored, write.start, answer.start, write.file)
	case answer.start < sync.end:
		return fmt.Errorf("%q is written in line %d and sent in line %d, but synced in line %d", stored, write.start, answer.start, sync.end)
	}
	return nil
}

// TestTheOrderIsSeen tests the test: traces with one call out of place.
func TestTheOrderIsSeen(t *testing.T) {
	const (
		write = `11 1.000001 pwrite64(15</d/nats/jetstream/$G/streams/SCRIP_EVT_0/msgs/1.blk>, "\"id\":\"a\"", 9, 208) = 9`
		sync  = `12 1.000002 fsync(15</d/nats/jetstream/$G/streams/SCRIP_EVT_0/msgs/1.blk>) = 0`
		other = `12 1.000003 fsync(16</d/nats/jetstream/$G/streams/SCRIP_EVT_1/msgs/1.blk>) = 0`
		wrong = `12 1.000003 fsync(15</d/nats/jetstream/$G/streams/SCRIP_EVT_0/msgs/1.blk>) = -1 EIO (Input/output error)`
		start = `12 1.000002 fsync(15</d/nats/jetstream/$G/streams/SCRIP_EVT_0/msgs/1.blk> <unfinished ...>`
		end   = `12 1.000009 <... fsync resumed>) = 0`
		part  = `13 1.000004 write(20<TCP:[127.0.0.1:1->127.0.0.1:2]>, "PUB _INB", 8) = 8`
		rest  = `13 1.000005 write(20<TCP:[127.0.0.1:1->127.0.0.1:2]>, "OX.a 9\r\n", 8) = 8`
		send  = `13 1.000004 write(20<TCP:[127.0.0.1:1->127.0.0.1:2]>, "PUB _INBOX.a 9\r\n", 16) = 16`
	)
	for _, c := range []struct {
		name  string
		trace []string
		want  string // "" = in order
	}{
		{"in order", []string{write, sync, send}, ""},
		{"in order, the sync in two parts", []string{write, start, end, send}, ""},
		{"in order, the answer in two parts", []string{write, sync, part, rest}, ""},
		{"sent first, in two parts", []string{write, part, rest, sync}, "but synced in line 4"},
		{"no sync", []string{write, send}, "never synced"},
		{"a sync of another stream", []string{write, other, send}, "never synced"},
		{"a sync that failed", []string{write, wrong, send}, "never synced"},
		{"sent first", []string{write, send, sync}, "but synced in line 3"},
		{"sent before the sync returned", []string{write, start, send, end}, "but synced in line 4"},
		{"synced before it was written", []string{sync, write, send}, "never synced"},
		{"the sync started before the write", []string{start, write, end, send}, "never synced"},
		{"not written", []string{sync, send}, "no write"},
		{"not sent", []string{write, sync}, "never sent"},
	} {
		err := onDisk(parseTrace(strings.Join(c.trace, "\n")), "SCRIP_EVT_0", `\"id\":\"a\"`, "PUB _INBOX.a ")
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
