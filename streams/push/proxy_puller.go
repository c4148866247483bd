package push

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// proxyPuller is a puller and its messages: those of a lane or of a class.
type proxyPuller struct {
	client  *proxyClient
	what    request
	ended   chan struct{}
	endOnce *sync.Once
}

func (pc *proxyClient) lanePuller(lane int) puller {
	return proxyPuller{client: pc, what: request{Lane: &lane}}
}

func (pc *proxyClient) classPuller(c class) puller {
	return proxyPuller{client: pc, what: request{Class: c.String()}}
}

func (pp proxyPuller) ackWait() time.Duration { return time.Duration(pp.client.wait.Load()) }

func (pp proxyPuller) messages(int) (messages, error) {
	pp.ended, pp.endOnce = make(chan struct{}), &sync.Once{}
	return pp, nil
}

// gone pauses: after an answer the next request would fail at once, too.
func (pp proxyPuller) gone(ctx context.Context, cause error) error {
	if natsx.Pause(ctx, missingPause) != nil || !errors.Is(cause, errMissing) {
		return nil
	}
	return cause
}

func (pp proxyPuller) next(ctx context.Context) (delivery, error) {
	pp.what.Wait = pollFor
	for {
		select {
		case <-pp.ended:
			return nil, jetstream.ErrMsgIteratorClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		default:
		}
		m, data, err := pp.client.request(ctx, EndpointNext, pp.what, pollFor+waitSlack+requestTimeout)
		switch {
		case errors.Is(err, ErrDenied):
			return nil, &fatalError{fmt.Errorf("push: %w", err)}
		case err != nil:
			return nil, err
		case data == nil:
			return pp.client.delivered(m)
		case string(data) == `"`+missing+`"`:
			return nil, errMissing
		}
	}
}

func (pp proxyPuller) drain() { pp.endOnce.Do(func() { close(pp.ended) }) }
func (pp proxyPuller) stop()  { pp.drain() }

// proxyMessage is a delivery.
type proxyMessage struct {
	client  *proxyClient
	subject string
	header  nats.Header
	data    []byte
	token   string
	meta    jetstream.MsgMetadata
}

// delivered reads an answer that is a message.
func (pc *proxyClient) delivered(m *nats.Msg) (*proxyMessage, error) {
	var stored int64
	got := &proxyMessage{client: pc, subject: m.Header.Get(headerSubject), token: m.Header.Get(headerToken), data: m.Data, header: maps.Clone(m.Header)}
	if _, err := fmt.Sscanf(m.Header.Get(headerPosition), "%d %d %d", &got.meta.Sequence.Stream, &stored, &got.meta.NumDelivered); err != nil {
		return nil, fmt.Errorf("an answer that is not understood: %s: %w", headerPosition, err)
	}
	got.meta.Timestamp = time.Unix(0, stored)
	for _, name := range []string{headerSubject, headerToken, headerPosition} {
		delete(got.header, name)
	}
	return got, nil
}

func (m *proxyMessage) Metadata() (*jetstream.MsgMetadata, error) { return &m.meta, nil }
func (m *proxyMessage) Subject() string                           { return m.subject }
func (m *proxyMessage) Headers() nats.Header                      { return m.header }
func (m *proxyMessage) Data() []byte                              { return m.data }

func (m *proxyMessage) Ack() error {
	return m.client.send(EndpointAck, request{Token: m.token, As: asAck})
}
func (m *proxyMessage) Nak() error { return m.NakWithDelay(0) }

func (m *proxyMessage) NakWithDelay(delay time.Duration) error {
	return m.client.send(EndpointAck, request{Token: m.token, As: asNak, Delay: delay})
}

func (m *proxyMessage) InProgress() error {
	return m.client.send(EndpointAck, request{Token: m.token, As: asProgress})
}

func (m *proxyMessage) DoubleAck(ctx context.Context) error {
	_, _, err := m.client.request(ctx, EndpointAck, request{Token: m.token, As: asAck}, requestTimeout)
	return err
}
