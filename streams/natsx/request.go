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

// response is the part that every response of the JetStream API has.
type response struct {
	Error   *jetstream.APIError    `json:"error"`
	Cluster *jetstream.ClusterInfo `json:"cluster"`
}

// failed returns the error in the response, nil if there is none. While a stream has no leader, every replica answers
// STREAM.INFO from its own copy, without naming a leader: that counts as no answer.
func (r *response) failed() error {
	switch {
	case r.Error != nil:
		return r.Error
	case r.Cluster != nil && r.Cluster.Leader == "":
		return ErrNoLeader
	}
	return nil
}

// request sends a JetStream API request such as "STREAM.INFO.SCRIP_EVT_0" until it is answered or ctx ends: after 500 ms, then
// at pauses of up to 1 s, each time listening for the answers to all of them. It is for reads only. Answers of kind
// [Transient] count as none; any other error in the answer is returned.
func request[A any, P interface {
	*A
	failed() error
}](ctx context.Context, js jetstream.JetStream, what string, body []byte) (answer A, err error) {
	nc, subject := js.Conn(), API(js, what)
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
		var got A // nothing of an answer before this one
		if err == nil {
			err = decode(msg, P(&got))
		}
		switch {
		case err == nil:
			return got, nil
		case ctx.Err() != nil:
			return answer, fmt.Errorf("%s: %w", subject, errors.Join(ctx.Err(), last))
		case !Transient(err):
			return answer, fmt.Errorf("%s: %w", subject, err)
		}
		if last = err; errors.Is(err, context.DeadlineExceeded) {
			continue // the pause is over
		}
		_ = Pause(ctx, requestPause) // the next round checks ctx
	}
}

func decode(msg *nats.Msg, into interface{ failed() error }) error {
	if len(msg.Data) == 0 && msg.Header.Get("Status") == "503" {
		return nats.ErrNoResponders
	}
	if err := json.Unmarshal(msg.Data, into); err != nil {
		return fmt.Errorf("answer %.100q: %w", msg.Data, err)
	}
	return into.failed()
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

// StreamInfo is what a stream's leader reports.
type StreamInfo struct {
	response
	Config jetstream.StreamConfig `json:"config"`
	State  jetstream.StreamState  `json:"state"`
}

// Info reads a stream's configuration and state from its leader. With a filter, which may have wildcards, the state counts the
// messages of each subject that fits. It retries until ctx ends.
func Info(ctx context.Context, js jetstream.JetStream, stream, filter string) (StreamInfo, error) {
	var body []byte
	if filter != "" {
		body = fmt.Appendf(nil, `{"subjects_filter":%q}`, filter)
	}
	return request[StreamInfo](ctx, js, "STREAM.INFO."+stream, body)
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
	got, err := request[messageAnswer](ctx, js, "STREAM.MSG.GET."+stream, query)
	if err != nil {
		return Message{}, err
	}
	return got.message(), nil
}

// messageAnswer is the answer to STREAM.MSG.GET.
type messageAnswer struct {
	response
	Message struct {
		Subject string    `json:"subject"`
		Seq     uint64    `json:"seq"`
		Header  []byte    `json:"hdrs"`
		Data    []byte    `json:"data"`
		Time    time.Time `json:"time"`
	} `json:"message"`
}

func (got *messageAnswer) message() Message {
	m := Message{Subject: got.Message.Subject, Data: got.Message.Data, Sequence: got.Message.Seq, Time: got.Message.Time.UTC(), Header: nats.Header{}}
	// NATS stores headers that cannot be decoded, and nats.go delivers such a message without any: so does this.
	if header, err := nats.DecodeHeadersMsg(got.Message.Header); err == nil {
		m.Header = header
	}
	return m
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
		errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) || // also of a server that has just started
		HasCode(err, codeNoPeers, codeClusterAway, codeNoResources, codeOffline)
}
