package push

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// WaitStream stores which messages of the log wait: for a call, behind others of a higher priority, or for their next try.
// Each entry has the subject scrip.push.wait.<name>.<class>.<lane>.<sequence>.<time>.<hop>.<line>, and is removed when it is
// acknowledged. It refers to the log and holds no customers: some 100 bytes for up to 500 of them.
const WaitStream = topology.PushWaitStream

const (
	waitSubjects = topology.PushWaitSubjects
	// againUnacked bounds the entries of a name that wait for their next try at NATS; the others wait behind them.
	againUnacked = 4096
)

// entry is the payload of a message of WaitStream.
type entry struct {
	// Lines are the numbers of those to deliver, none = all.
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

// waitStream is WaitStream, opened.
type waitStream struct {
	js   jetstream.JetStream
	name string
}

// openWaiting finds the stream or makes it.
func openWaiting(ctx context.Context, js jetstream.JetStream, name string) (*waitStream, error) {
	if _, err := topology.FindOrMake(ctx, js, topology.PushWaitConfig); err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	return &waitStream{js: js, name: name}, nil
}

// waitConsumer is the name of the consumer of one class of a name.
func waitConsumer(name string, c class) string { return name + "-" + c.String() }

// consumer finds or makes the consumer of one class. Its messages are never lost with it: the stream keeps what was not
// acknowledged.
func (s *waitStream) consumer(ctx context.Context, c class, o *Options) (jetstream.Consumer, error) {
	name := waitConsumer(o.Name, c)
	consumer, err := s.js.Consumer(ctx, WaitStream, name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		unacked := o.Unacked
		if c == again {
			unacked = againUnacked
		}
		consumer, err = s.js.CreateConsumer(ctx, WaitStream, jetstream.ConsumerConfig{
			Durable: name, Description: "a scrip push sender", FilterSubject: waitSubjects + o.Name + "." + c.String() + ".>",
			AckPolicy: jetstream.AckExplicitPolicy, AckWait: o.AckWait, MaxAckPending: unacked, MaxDeliver: -1,
		})
		if errors.Is(err, jetstream.ErrConsumerExists) {
			consumer, err = s.js.Consumer(ctx, WaitStream, name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("push: consumer %q of stream %s: %w", name, WaitStream, err)
	}
	return consumer, nil
}

// waitSubject names an entry: of one hop of one message there may be several, of different lines.
func waitSubject(name string, c class, id messageID) string {
	return fmt.Sprintf("%s%s.%s.%d.%d.%d.%d.%d", waitSubjects, name, c, id.Lane, id.Sequence, id.Stored, id.Hop, id.Line)
}

func parseWaitSubject(subject string) (name string, c class, id messageID, err error) {
	parts := strings.Split(strings.TrimPrefix(subject, waitSubjects), ".")
	if len(parts) != 7 {
		return "", 0, id, fmt.Errorf("subject %q is no waiting message's", subject)
	}
	if c, err = parseClass(parts[1]); err != nil {
		return "", 0, id, err
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
func (s *waitStream) put(ctx context.Context, c class, id messageID, e entry) error {
	msg, err := e.message(waitSubject(s.name, c, id))
	if err != nil {
		return err
	}
	ctx, done := context.WithTimeout(ctx, storeTimeout)
	defer done()
	_, err = s.js.PublishMsg(ctx, msg, jetstream.WithExpectStream(WaitStream), jetstream.WithExpectLastSequencePerSubject(0))
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return s.holds(ctx, msg.Subject, e)
	}
	return err
}

// holds checks that the entry that is stored under a subject has all lines of e.
func (s *waitStream) holds(ctx context.Context, subject string, e entry) error {
	stream, err := s.js.Stream(ctx, WaitStream)
	if err != nil {
		return err
	}
	msg, err := stream.GetLastMsgForSubject(ctx, subject)
	if err != nil {
		return err // it was acknowledged in between: the next try stores e
	}
	var stored entry
	if err := json.Unmarshal(msg.Data, &stored); err != nil {
		return fmt.Errorf("%s: %w", subject, err)
	}
	if len(stored.Lines) == 0 {
		return nil
	}
	for _, line := range e.Lines {
		if !slices.Contains(stored.Lines, line) {
			return fmt.Errorf("%s: an earlier entry with other lines waits there", subject)
		}
	}
	if len(e.Lines) == 0 {
		return fmt.Errorf("%s: an earlier entry with some of the lines waits there", subject)
	}
	return nil
}
