package push

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// DeadStream stores dead letters until an operator removes or retries them. Each letter has the subject
// scrip.push.dead.<name>.<lane>.<sequence>.<time>; its payload is one JSON line per reminder.
const DeadStream = topology.PushDeadStream

const (
	// Format of dead letters, of entries of WaitStream and of records in Bucket. A higher one stops its reader.
	Format = 1

	deadSubjects = topology.PushDeadSubjects

	headerStream   = "Scrip-Push-Stream"
	headerSequence = "Scrip-Push-Sequence"
	headerTries    = "Scrip-Push-Tries"
	headerError    = "Scrip-Push-Error"

	// reasonMost is how many bytes of an error a letter quotes. Stacks of panics are in the process's own log.
	reasonMost = 512

	storeTimeout   = 2 * time.Second
	storePause     = 100 * time.Millisecond
	storePauseMost = 5 * time.Second
)

// errChanged: the subject holds another letter, or none, where this one was expected.
var errChanged = errors.New("the dead letter is not as it was")

// DeadLetter holds the reminders of one message that could not be delivered.
type DeadLetter struct {
	// ID names the letter in DeadStream.
	ID uint64 `json:"id"`
	// Name is the push sender's. Lane, Stream and Sequence are those of the message.
	Name     string `json:"name"`
	Lane     int    `json:"lane"`
	Stream   string `json:"stream"`
	Sequence uint64 `json:"sequence"`
	// Tries is how many tries failed, or how often the message was delivered where that was the reason to give it up. The
	// last try failed with Error, at At.
	Tries int       `json:"tries"`
	Error string    `json:"error"`
	At    time.Time `json:"at"`
	// Reminders are those that were not delivered.
	Reminders []Reminder `json:"reminders"`

	id messageID // of the message
}

func (p *Pusher) newLetter(w *work, items []item, tries int, cause error) DeadLetter {
	return DeadLetter{
		Name: p.opts.Name, Lane: w.lane, Stream: p.source.stream(p.js, w.lane).Name(), Sequence: w.sequence, id: w.id,
		Tries: tries, Error: oneLine(cause), At: p.opts.Clock.Now().UTC(), Reminders: bare(items),
	}
}

// oneLine returns an error's text as a header can hold it.
func oneLine(err error) string {
	return wire.Shorten(strings.ToValidUTF8(strings.Join(strings.Fields(err.Error()), " "), ""), reasonMost)
}

// deadSubject contains the stored time of the message, too: see messageID.
func deadSubject(name string, id messageID) string {
	return fmt.Sprintf("%s%s.%d.%d.%d", deadSubjects, name, id.Lane, id.Sequence, id.Stored)
}

// deadStream is DeadStream, opened.
type deadStream struct {
	js     jetstream.JetStream
	stream jetstream.Stream
}

// openDead finds the stream or makes it, with as many replicas as the reminders have. A subject holds one letter, so a
// letter cannot be written twice, at any later time.
func openDead(ctx context.Context, js jetstream.JetStream) (*deadStream, error) {
	stream, err := topology.FindOrMake(ctx, js, topology.PushDeadConfig)
	if err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	return &deadStream{js: js, stream: stream}, nil
}

// get returns the letter of a message; ok is false if there is none.
func (d *deadStream) get(ctx context.Context, name string, message messageID) (l DeadLetter, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	msg, err := d.stream.GetLastMsgForSubject(ctx, deadSubject(name, message))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return l, false, nil
	}
	if err == nil {
		l, err = readLetter(msg)
	}
	return l, err == nil, err
}

// add adds reminders to the letter of their message, or writes it. Those that are in it already are not added again: the
// process that wrote it died before the acknowledgement.
func (d *deadStream) add(ctx context.Context, l *DeadLetter) error {
	more := l.Reminders
	for {
		before, _, err := d.get(ctx, l.Name, l.id)
		if err != nil {
			return err
		}
		l.Reminders = slices.Clone(before.Reminders)
		for _, r := range more {
			if !slices.ContainsFunc(before.Reminders, func(b Reminder) bool { return b.Key == r.Key }) {
				l.Reminders = append(l.Reminders, r)
			}
		}
		if len(l.Reminders) == len(before.Reminders) {
			*l = before
			return nil
		}
		if err := d.store(ctx, l, before.ID); !errors.Is(err, errChanged) {
			return err
		}
	}
}

// remove removes reminders from the letter of a message, and the letter if it has no others.
func (d *deadStream) remove(ctx context.Context, name string, message messageID, gone []item) error {
	for {
		l, ok, err := d.get(ctx, name, message)
		if err != nil || !ok {
			return err
		}
		l.Reminders = slices.DeleteFunc(l.Reminders, func(r Reminder) bool {
			return slices.ContainsFunc(gone, func(it item) bool { return it.Key == r.Key })
		})
		if len(l.Reminders) == 0 {
			return d.delete(ctx, l.ID)
		}
		if err := d.store(ctx, &l, l.ID); !errors.Is(err, errChanged) {
			return err
		}
	}
}

// store writes a letter in the place of the one with the id replaces, 0 for none, and retries until it is stored or ctx
// ends. If the subject holds something else the error is errChanged; after an attempt without an answer that may be the
// letter itself.
func (d *deadStream) store(ctx context.Context, l *DeadLetter, replaces uint64) error {
	msg, err := l.message()
	if err != nil {
		return err
	}
	for pause := storePause; ; pause = min(2*pause, storePauseMost) {
		once, done := context.WithTimeout(ctx, storeTimeout)
		ack, err := d.js.PublishMsg(once, msg, jetstream.WithExpectStream(DeadStream), jetstream.WithExpectLastSequencePerSubject(replaces))
		done()
		var api *jetstream.APIError
		switch {
		case err == nil:
			l.ID = ack.Sequence
			return nil
		case errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence:
			return errChanged
		case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrMaxPayload):
			return err
		}
		if natsx.Pause(ctx, pause) != nil {
			return err
		}
	}
}

// message returns the letter as DeadStream holds it.
func (l *DeadLetter) message() (*nats.Msg, error) {
	payload, err := encode(l.Reminders)
	msg := nats.NewMsg(deadSubject(l.Name, l.id))
	msg.Data = payload
	msg.Header.Set(topology.HeaderFormat, strconv.Itoa(Format))
	msg.Header.Set(headerStream, l.Stream)
	msg.Header.Set(headerSequence, strconv.FormatUint(l.Sequence, 10))
	msg.Header.Set(headerTries, strconv.Itoa(l.Tries))
	msg.Header.Set(headerError, l.Error)
	return msg, err
}

// checkFormat returns an error if a message was written by a newer program.
func checkFormat(what string, h nats.Header) error {
	if format, _ := strconv.Atoi(h.Get(topology.HeaderFormat)); format > Format {
		return fmt.Errorf("%s has format %d, this program reads up to %d; use a newer scrip", what, format, Format)
	}
	return nil
}

// delete deletes a letter of which nothing is left.
func (d *deadStream) delete(ctx context.Context, id uint64) error {
	err := d.stream.DeleteMsg(ctx, id)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	return err
}

// Letters lists dead letters, oldest first, of one name or, if that is empty, of all. Letters written or removed meanwhile
// may be in it or not. An error ends it.
func Letters(ctx context.Context, js jetstream.JetStream, name string) iter.Seq2[DeadLetter, error] {
	return func(yield func(DeadLetter, error) bool) {
		fail := func(err error) { yield(DeadLetter{}, fmt.Errorf("push: listing dead letters: %w", err)) }
		filter := deadSubjects + ">"
		if name != "" {
			if err := checkName(name); err != nil {
				yield(DeadLetter{}, err)
				return
			}
			filter = deadSubjects + name + ".>"
		}
		stream, err := js.Stream(ctx, DeadStream)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return // no push sender has run yet
		}
		if err != nil {
			fail(err)
			return
		}
		info, err := stream.Info(ctx, jetstream.WithSubjectFilter(filter))
		if err != nil {
			fail(err)
			return
		}
		for _, subject := range slices.SortedFunc(maps.Keys(info.State.Subjects), byPosition) {
			msg, err := stream.GetLastMsgForSubject(ctx, subject)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue
			}
			var l DeadLetter
			if err == nil {
				l, err = readLetter(msg)
			}
			if err != nil {
				fail(err)
				return
			}
			if !yield(l, nil) {
				return
			}
		}
	}
}

// byPosition orders subjects by name, lane and sequence.
func byPosition(a, b string) int {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	return cmp.Or(slices.CompareFunc(x, y, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }), 0)
}

func readLetter(msg *jetstream.RawStreamMsg) (DeadLetter, error) {
	if err := checkFormat(fmt.Sprintf("letter %d of stream %s", msg.Sequence, DeadStream), msg.Header); err != nil {
		return DeadLetter{ID: msg.Sequence}, err
	}
	l := DeadLetter{ID: msg.Sequence, Stream: msg.Header.Get(headerStream), Error: msg.Header.Get(headerError), At: msg.Time.UTC()}
	var err error
	complain := func(what string, e error) {
		if e != nil && err == nil {
			err = fmt.Errorf("letter %d of stream %s was not written by a push sender: %s: %w; inspect it, and remove it from the stream", msg.Sequence, DeadStream, what, e)
		}
	}
	number := func(what, s string) uint64 {
		n, e := strconv.ParseUint(s, 10, 64)
		complain(what, e)
		return n
	}
	parts := strings.Split(strings.TrimPrefix(msg.Subject, deadSubjects), ".")
	if len(parts) != 4 {
		complain("subject", fmt.Errorf("it is %q", msg.Subject))
		return l, err
	}
	l.Name, l.Lane, l.Sequence = parts[0], int(number("subject", parts[1])), number("subject", parts[2])
	l.id = messageID{Lane: l.Lane, Sequence: l.Sequence, Stored: int64(number("subject", parts[3]))}
	l.Tries = int(number(headerTries, msg.Header.Get(headerTries)))
	var e error
	l.Reminders, e = decode(msg.Data)
	complain("payload", e)
	return l, err
}
