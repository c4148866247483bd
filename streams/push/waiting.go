package push

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/priority"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// WaitStream stores which messages of the log wait: for a call, after others of a higher priority, or for their next try.
// Each entry has the subject scrip.push.wait.<name>.<class>.<lane>.<sequence>.<time>.<hop>.<line>, and is removed when it is
// acknowledged. It refers to the log and holds no customers: some 100 bytes, and up to 30 kB where some of 5,000 customers are left.
const WaitStream = topology.PushWaitStream

const waitSubjects = topology.PushWaitSubjects

// class is a queue of messages that wait for a call: the priorities, and again for messages that failed before, and for those of
// campaigns that only fail.
type class = priority.Priority

const (
	again   = priority.Again
	classes = priority.All
)

// entry is the payload of a message of WaitStream.
type entry struct {
	// Lines are the numbers of the items to deliver, none = all.
	Lines []int `json:"lines,omitempty"`
	// Tries failed so far. At is when the next one is due.
	Tries int       `json:"tries,omitempty"`
	At    time.Time `json:"at,omitzero"`
	// Split: a call for several campaigns failed as a whole.
	Split bool `json:"split,omitempty"`
	// Process and Answers are for the process that wrote it: how many calls were answered when the last try failed.
	Process string `json:"process,omitempty"`
	Answers uint64 `json:"answers,omitempty"`
}

func waitConsumer(name string, c class) string { return name + "-" + c.String() }

// waitSubject names an entry: of one hop of one message there may be several, of different lines.
func waitSubject(name string, c class, id messageID) string {
	return fmt.Sprintf("%s%s.%s.%d.%d.%d.%d.%d", waitSubjects, name, c, id.Lane, id.Sequence, id.Stored, id.Hop, id.Line)
}

func parseWaitSubject(subject string) (name string, c class, id messageID, err error) {
	parts := strings.Split(strings.TrimPrefix(subject, waitSubjects), ".")
	if len(parts) != 7 {
		return "", 0, id, fmt.Errorf("subject %q is no waiting message's", subject)
	}
	c, ok := priority.Parse(parts[1])
	if !ok {
		return "", 0, id, fmt.Errorf("subject %q is no waiting message's", subject)
	}
	var n [5]int64
	for i, text := range parts[2:] {
		if n[i], err = strconv.ParseInt(text, 10, 64); err != nil || n[i] < 0 {
			return "", 0, id, fmt.Errorf("subject %q is no waiting message's", subject)
		}
	}
	return parts[0], c, messageID{Lane: int(n[0]), Sequence: uint64(n[1]), Stored: n[2], Hop: int(n[3]), Line: int(n[4])}, nil
}

// message returns the entry as WaitStream holds it.
func (e *entry) message(subject string) (msg *nats.Msg, err error) {
	msg = nats.NewMsg(subject)
	msg.Header.Set(topology.HeaderFormat, strconv.Itoa(Format))
	msg.Data, err = json.Marshal(e)
	return msg, err
}

// put stores an entry. One that is there already and has all of its lines is the same: the process before died between it and
// the acknowledgement. One with other lines is of an earlier delivery, whose message was returned: its own try comes first.
func (d *direct) put(ctx context.Context, c class, id messageID, e entry) error {
	msg, err := e.message(waitSubject(d.opts.Name, c, id))
	if err != nil {
		return err
	}
	ctx, done := context.WithTimeout(ctx, storeTimeout)
	defer done()
	_, err = d.js.PublishMsg(ctx, msg, jetstream.WithExpectStream(WaitStream), jetstream.WithExpectLastSequencePerSubject(0))
	if !natsx.IsWrongSequence(err) {
		return err
	}
	m, found, err := natsx.LastMessage(ctx, d.js, WaitStream, msg.Subject)
	var stored entry
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("%s: it was acknowledged in between", msg.Subject) // the next try stores e
	}
	if err := json.Unmarshal(m.Data, &stored); err != nil {
		return fmt.Errorf("%s: %w", msg.Subject, err)
	}
	if !stored.covers(&e) {
		return fmt.Errorf("%s: an earlier entry without some of the lines waits there", msg.Subject)
	}
	return nil
}

func (e *entry) covers(other *entry) bool {
	if len(e.Lines) == 0 || len(other.Lines) == 0 {
		return len(e.Lines) == 0
	}
	have := make(map[int]bool, len(e.Lines))
	for _, n := range e.Lines {
		have[n] = true
	}
	return !slices.ContainsFunc(other.Lines, func(n int) bool { return !have[n] })
}
