package natsx

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// getAtOnce is how many messages GetMessages requests before the first answer: each may have a megabyte, and a server ends a
// connection with 64 MiB that are not taken.
const getAtOnce = 16

// GetMessages is GetMessage for many messages of a stream, by their sequences: a tenth of its work for each. It calls each once for
// each of them, in no order, with what GetMessage would return.
func GetMessages(ctx context.Context, js jetstream.JetStream, stream string, sequences []uint64,
	each func(sequence uint64, m Message, err error)) {
	left := getMany(ctx, js, stream, sequences, each)
	for _, sequence := range left { // with retries
		m, err := GetMessage(ctx, js, stream, bySequence(sequence))
		each(sequence, m, err)
	}
}

func bySequence(sequence uint64) []byte { return fmt.Appendf(nil, `{"seq":%d}`, sequence) }

// getMany requests each message once, and returns those without an answer that counts.
func getMany(ctx context.Context, js jetstream.JetStream, stream string, sequences []uint64,
	each func(uint64, Message, error)) (left []uint64) {
	answered := make([]bool, len(sequences))
	defer func() {
		for n, sequence := range sequences {
			if !answered[n] {
				left = append(left, sequence)
			}
		}
	}()
	nc, subject := js.Conn(), API(js, "STREAM.MSG.GET."+stream)
	inbox, answers := nc.NewInbox(), make(chan *nats.Msg, getAtOnce)
	sub, err := nc.ChanSubscribe(inbox+".*", answers)
	if err != nil {
		return nil
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection may be closed, and the subscription with it
	silent := time.NewTimer(requestFirst)
	defer silent.Stop()
	for sent, taken := 0, 0; taken < len(sequences); taken++ {
		for ; sent < min(taken+getAtOnce, len(sequences)); sent++ {
			if err := nc.PublishRequest(subject, inbox+"."+strconv.Itoa(sent), bySequence(sequences[sent])); err != nil {
				return nil
			}
		}
		silent.Reset(requestFirst)
		select {
		case msg := <-answers:
			n, err := strconv.Atoi(msg.Subject[len(inbox)+1:])
			if err != nil || n < 0 || n >= sent || answered[n] {
				continue // not of a server
			}
			var got messageAnswer
			if err = decode(msg, &got); err == nil || !Transient(err) {
				answered[n] = true
				each(sequences[n], got.message(), err)
			}
		case <-silent.C:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}
