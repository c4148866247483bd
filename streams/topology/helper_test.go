package topology_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

type jetStreams func(testing.TB, ...nats.Option) jetstream.JetStream

// alter changes a stream behind scrip's back.
func alter(t *testing.T, js jetstream.JetStream, name string, change func(*jetstream.StreamConfig)) {
	t.Helper()
	stream, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	change(&cfg)
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

func newMsg(subject, header, value string) *nats.Msg {
	msg := nats.NewMsg(subject)
	msg.Header.Set(header, value)
	return msg
}
