package backup

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

const (
	// answerWait bounds one request to the JetStream API. A restore on a cluster answers after an election.
	answerWait = 15 * time.Second
	// idleWait is how long a transfer may make no progress. The server gives up after five seconds.
	idleWait = 30 * time.Second
)

// bounds is what a stream holds, as the API reports it.
type bounds struct {
	Messages  uint64 `json:"messages"`
	Bytes     uint64 `json:"bytes"`
	First     uint64 `json:"first_seq"`
	Last      uint64 `json:"last_seq"`
	Consumers int    `json:"consumer_count"`
}

// streamInfo is a stream's configuration and state, as the server reported it and accepts it again.
type streamInfo struct {
	Config jetstream.StreamConfig `json:"config"`
	State  json.RawMessage        `json:"state"`
}

func (i streamInfo) bounds() (b bounds, err error) {
	return b, json.Unmarshal(i.State, &b)
}

// request sends one request to the JetStream API.
func request(ctx context.Context, js jetstream.JetStream, what string, question, answer any) error {
	data, err := json.Marshal(question)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	msg, err := js.Conn().RequestWithContext(ctx, natsx.API(js, what), data)
	if err != nil {
		return err
	}
	var failed struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(msg.Data, &failed); err != nil {
		return err
	}
	if failed.Error != nil {
		return failed.Error
	}
	return json.Unmarshal(msg.Data, answer)
}

// unanswered reports whether the server did not answer, rather than refused.
func unanswered(err error) bool {
	return errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, nats.ErrDisconnected) || errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, jetstream.ErrNoStreamResponse)
}

// with returns a configuration with other metadata added to its own.
func with(config jetstream.StreamConfig, metadata map[string]string) jetstream.StreamConfig {
	own := maps.Clone(config.Metadata)
	if own == nil {
		own = map[string]string{}
	}
	maps.Copy(own, metadata)
	config.Metadata = own
	return config
}
