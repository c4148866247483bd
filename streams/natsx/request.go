package natsx

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// requestFirst and requestMost are the pauses after which a request without an answer is sent again: the first is doubled
	// up to the other. A request to a stream without a leader, or to a server about to stop, is never answered.
	requestFirst = 500 * time.Millisecond
	requestMost  = time.Second
	// requestPause is the pause after an answer of kind Transient.
	requestPause = 50 * time.Millisecond
)

// ErrNoLeader: the replicas of a stream elect a leader; what one of them reports of its own copy may lag.
var ErrNoLeader = errors.New("the stream has no leader")

// Answer is the part that every answer of the JetStream API has. Embed it.
type Answer struct {
	Error   *jetstream.APIError `json:"error"`
	Cluster *struct {
		Leader string `json:"leader"`
	} `json:"cluster"`
}

// Failed returns the error in the answer, nil if there is none. While a stream has no leader, every replica answers
// STREAM.INFO from its own copy, without naming a leader: that counts as no answer.
func (a *Answer) Failed() error {
	switch {
	case a.Error != nil:
		return a.Error
	case a.Cluster != nil && a.Cluster.Leader == "":
		return ErrNoLeader
	}
	return nil
}

// API is the subject of a JetStream API request such as "STREAM.INFO.SCRIP_EVT_0", with the prefix that js was made
// with.
func API(js jetstream.JetStream, request string) string {
	switch o := js.Options(); {
	case o.APIPrefix != "":
		return strings.TrimSuffix(o.APIPrefix, ".") + "." + request
	case o.Domain != "":
		return "$JS." + o.Domain + ".API." + request
	}
	return jetstream.DefaultAPIPrefix + request
}

// Request sends a JetStream API request such as "STREAM.INFO.SCRIP_EVT_0" until it is answered or ctx ends: after 500 ms, then
// at pauses of up to 1 s, each time listening for the answers to all of them. Use it for reads only. Answers of
// kind [Transient] count as none; any other error in the answer is returned.
func Request[A any, P interface {
	*A
	Failed() error
}](ctx context.Context, js jetstream.JetStream, request string, body []byte) (answer A, err error) {
	nc, subject := js.Conn(), API(js, request)
	inbox := nc.NewRespInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return answer, fmt.Errorf("%s: %w", subject, err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection may be closed, and the subscription with it
	var last error          // why there is no answer yet
	for wait := requestFirst; ; wait = min(2*wait, requestMost) {
		if err := nc.PublishRequest(subject, inbox, body); err != nil {
			return answer, fmt.Errorf("%s: %w", subject, err)
		}
		attempt, done := context.WithTimeout(ctx, wait)
		msg, err := sub.NextMsgWithContext(attempt)
		done()
		if err == nil {
			var got A
			err = parseAnswer(msg, P(&got))
			if err == nil {
				return got, nil
			}
		}
		if ctx.Err() != nil {
			return answer, fmt.Errorf("%s: %w", subject, errors.Join(ctx.Err(), last))
		}
		if !Transient(err) {
			return answer, fmt.Errorf("%s: %w", subject, err)
		}
		if last = err; errors.Is(err, context.DeadlineExceeded) {
			continue // the pause is over
		}
		_ = Pause(ctx, requestPause) // the next round checks ctx
	}
}

// Pause waits for d, or until ctx ends: then it returns the error of ctx.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func parseAnswer(msg *nats.Msg, answer interface{ Failed() error }) error {
	if len(msg.Data) == 0 && msg.Header.Get("Status") == "503" {
		return nats.ErrNoResponders
	}
	if err := json.Unmarshal(msg.Data, answer); err != nil {
		return fmt.Errorf("answer %.100q: %w", msg.Data, err)
	}
	return answer.Failed()
}

// Message is a message as the stream's leader stores it.
type Message struct {
	Subject  string
	Header   nats.Header
	Data     []byte
	Sequence uint64
	Time     time.Time // stored timestamp, nanoseconds
}

// GetMessage reads one message from the stream's leader; a direct get may be answered by a replica that lags. query is the
// body of the request: {"seq":7} or {"last_by_subj":"…"}. It retries until ctx ends. An APIError with
// [jetstream.JSErrCodeMessageNotFound] means that the stream has no such message.
func GetMessage(ctx context.Context, js jetstream.JetStream, stream string, query []byte) (Message, error) {
	type answer struct {
		Answer
		Message struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	got, err := Request[answer](ctx, js, "STREAM.MSG.GET."+stream, query)
	if err != nil {
		return Message{}, err
	}
	m := Message{Subject: got.Message.Subject, Data: got.Message.Data, Sequence: got.Message.Seq, Time: got.Message.Time.UTC(), Header: nats.Header{}}
	// NATS stores headers that cannot be decoded, and nats.go delivers such a message without any: so does this.
	if header, err := nats.DecodeHeadersMsg(got.Message.Header); err == nil {
		m.Header = header
	}
	return m, nil
}

// LastMessage reads the newest message of a subject, which may have wildcards, from the stream's leader; ok is false where
// there is none.
func LastMessage(ctx context.Context, js jetstream.JetStream, stream, subject string) (m Message, ok bool, err error) {
	query, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return Message{}, false, err
	}
	m, err = GetMessage(ctx, js, stream, query)
	if HasCode(err, jetstream.JSErrCodeMessageNotFound) {
		return Message{}, false, nil
	}
	return m, err == nil, err
}

// Transient reports whether the error means that the server, or the stream's leader, could not be reached now and may be
// later. The request may have had its effect.
func Transient(err error) bool {
	var old *nats.APIError // of nats.go's older interface, which its object store still uses
	if errors.As(err, &old) {
		err = errors.Join(err, &jetstream.APIError{ErrorCode: jetstream.ErrorCode(old.ErrorCode)})
	}
	return errors.Is(err, ErrNoLeader) ||
		errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, nats.ErrDisconnected) ||
		errors.Is(err, nats.ErrConnectionReconnecting) ||
		errors.Is(err, nats.ErrReconnectBufExceeded) ||
		errors.Is(err, jetstream.ErrNoStreamResponse) ||
		errors.Is(err, jetstream.ErrNoHeartbeat) ||
		errors.Is(err, jetstream.ErrJetStreamNotEnabled) ||
		HasCode(err, codeNoPeers, codeClusterAway, codeNoResources, codeOffline)
}
