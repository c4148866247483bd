package push

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// DeadStream stores dead letters until an operator removes or retries them. Each letter has the subject
// scrip.push.dead.<name>.<lane>.<sequence>.<time>.<part>; its payload is one JSON line per reminder.
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

	// storeTimeout bounds one attempt to store, and the pauses between attempts grow from storePause to storePauseMost.
	storeTimeout   = 2 * time.Second
	storePause     = 100 * time.Millisecond
	storePauseMost = 5 * time.Second
)

// lettersMost is how many reminders a dead letter has at most, which fit into a message: a part of a message is so many by number.
const lettersMost = 500

// DeadLetter holds the reminders of one message, or of one part of it, that could not be delivered.
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

	id messageID // of the message, and the part of it
}

// newLetters makes the letters of items of a message, one for each part.
func (p *Pusher) newLetters(id messageID, items []item, tries int, cause error) []DeadLetter {
	var all []DeadLetter
	for of, some := range parts(id, items) {
		all = append(all, DeadLetter{
			Name: p.opts.Name, Lane: id.Lane, Stream: p.source.stream(nil, id.Lane).Name(), Sequence: id.Sequence, id: of,
			Tries: tries, Error: reasonOf(cause), At: p.opts.Clock.Now().UTC(), Reminders: bare(some),
		})
	}
	return all
}

// parts divides items of a message by the dead letter that they belong to.
func parts(id messageID, items []item) iter.Seq2[messageID, []item] {
	return func(yield func(messageID, []item) bool) {
		of := map[int][]item{}
		for _, it := range items {
			n := (it.number - 1) / lettersMost
			of[n] = append(of[n], it)
		}
		for _, n := range slices.Sorted(maps.Keys(of)) {
			if !yield(messageID{Lane: id.Lane, Sequence: id.Sequence, Stored: id.Stored, Line: n}, of[n]) {
				return
			}
		}
	}
}

// reasonOf returns an error's text as a header can hold it.
func reasonOf(err error) string {
	return wire.Shorten(wire.OneLine(err.Error()), reasonMost)
}

// deadSubject contains the stored time of the message, too: see messageID.
func deadSubject(name string, id messageID) string {
	return fmt.Sprintf("%s%s.%d.%d.%d.%d", deadSubjects, name, id.Lane, id.Sequence, id.Stored, id.Line)
}

func (d *direct) letter(ctx context.Context, message messageID) (l DeadLetter, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	m, ok, err := natsx.LastMessage(ctx, d.js, DeadStream, deadSubject(d.opts.Name, message))
	if ok {
		l, err = readLetter(&m)
	}
	return l, ok && err == nil, err
}

func (d *direct) add(ctx context.Context, l *DeadLetter) error {
	more := l.Reminders
	for {
		before, _, err := d.letter(ctx, l.id)
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
		if err := d.store(ctx, l, before.ID); !natsx.IsWrongSequence(err) {
			return err
		}
	}
}

func (d *direct) remove(ctx context.Context, message messageID, keys []string) error {
	for {
		l, ok, err := d.letter(ctx, message)
		if err != nil || !ok {
			return err
		}
		l.Reminders = slices.DeleteFunc(l.Reminders, func(r Reminder) bool { return slices.Contains(keys, r.Key) })
		if len(l.Reminders) == 0 {
			return d.delete(ctx, l.ID)
		}
		if err := d.store(ctx, &l, l.ID); !natsx.IsWrongSequence(err) {
			return err
		}
	}
}

func (d *direct) settle(ctx context.Context, l DeadLetter, left []Reminder, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	if len(left) == 0 {
		return d.delete(ctx, l.ID)
	}
	l.Reminders, l.Error = left, reasonOf(cause)
	l.Tries++
	if err := d.store(ctx, &l, l.ID); !natsx.IsWrongSequence(err) { // else another Retry handled it, too
		return err
	}
	return nil
}

// store writes a letter in the place of the one with the id replaces, 0 for none. If the subject holds something else that is the
// error; after an attempt without an answer that may be the letter itself.
func (d *direct) store(ctx context.Context, l *DeadLetter, replaces uint64) error {
	msg, err := l.message()
	if err != nil {
		return err
	}
	return untilStored(ctx, func(ctx context.Context) error {
		ack, err := d.js.PublishMsg(ctx, msg, jetstream.WithExpectStream(DeadStream), jetstream.WithExpectLastSequencePerSubject(replaces))
		if err == nil {
			l.ID = ack.Sequence
		}
		return err
	})
}

// untilStored repeats a request until it succeeds, a retry does not help, or ctx ends.
func untilStored(ctx context.Context, request func(context.Context) error) error {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = storePause, storePauseMost
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		once, done := context.WithTimeout(ctx, storeTimeout)
		defer done()
		err := request(once)
		if natsx.IsWrongSequence(err) || errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, ErrDenied) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(pauses), backoff.WithMaxElapsedTime(0))
	return err
}

func (d *direct) delete(ctx context.Context, id uint64) error {
	stream, err := d.js.Stream(ctx, DeadStream)
	if err == nil {
		err = stream.DeleteMsg(ctx, id)
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	return err
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

func readLetter(msg *natsx.Message) (DeadLetter, error) {
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
	if len(parts) != 5 {
		complain("subject", fmt.Errorf("it is %q", msg.Subject))
		return l, err
	}
	l.Name, l.Lane, l.Sequence = parts[0], int(number("subject", parts[1])), number("subject", parts[2])
	l.id = messageID{Lane: l.Lane, Sequence: l.Sequence, Stored: int64(number("subject", parts[3])), Line: int(number("subject", parts[4]))}
	l.Tries = int(number(headerTries, msg.Header.Get(headerTries)))
	var e error
	l.Reminders, e = decode(msg.Data)
	complain("payload", e)
	return l, err
}

// encode writes items as a dead letter holds them: one JSON line each.
func encode(list []Reminder) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	for i := range list {
		if err := enc.Encode(&list[i]); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

func decode(payload []byte) ([]Reminder, error) {
	var list []Reminder
	for n, line := range eventlog.Lines(payload) {
		var r Reminder
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		list = append(list, r)
	}
	return list, nil
}
