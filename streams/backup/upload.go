package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/room"
)

const (
	// uploadWindow is how many chunks may be in flight.
	uploadWindow = 32
	// firstChunkWait is how long a server waits for the first chunk.
	firstChunkWait  = 5 * time.Second
	firstChunkPause = 20 * time.Millisecond
)

// upload sends a stream to the server, under a configuration that may differ from its own, and returns what the stream then
// holds. A stream that it could not finish may exist in part. begun is called when its first bytes have been sent.
func upload(ctx context.Context, js jetstream.JetStream, name string, info streamInfo, from io.Reader, disk *room.Disk, begun func()) (have bounds, err error) {
	var target struct {
		Subject string `json:"deliver_subject"`
	}
	if err := request(ctx, js, "STREAM.RESTORE."+name, info, &target); err != nil {
		return bounds{}, err
	}
	nc := js.Conn()
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return bounds{}, err
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection may be closed
	ended := false          // whether the end has been sent
	defer func() {
		var api *jetstream.APIError
		if err != nil && !errors.As(err, &api) { // an API error is the server's answer, and ends the transfer
			giveUp(ctx, nc, sub, target.Subject, ended)
		}
	}()
	buf := make([]byte, chunkSize)
	for first, flying := true, 0; ; first = false {
		n, err := io.ReadFull(from, buf)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return bounds{}, err
		}
		if err := disk.Take(n); err != nil {
			return bounds{}, err
		}
		switch {
		case n == 0:
		case first:
			if err := sendFirst(ctx, nc, sub, target.Subject, buf[:n]); err != nil {
				return bounds{}, err
			}
		default:
			if err := nc.PublishRequest(target.Subject, sub.Subject, buf[:n]); err != nil {
				return bounds{}, err
			}
			flying++
		}
		if first {
			begun()
		}
		for ; flying >= uploadWindow || last && flying > 0; flying-- {
			if _, err := answered(ctx, sub); err != nil {
				return bounds{}, err
			}
		}
		if last {
			break
		}
	}
	// An empty chunk ends it.
	ended = true
	if err := nc.PublishRequest(target.Subject, sub.Subject, nil); err != nil {
		return bounds{}, err
	}
	data, err := answered(ctx, sub)
	if err != nil {
		return bounds{}, err
	}
	var done struct {
		State bounds `json:"state"`
	}
	return done.State, json.Unmarshal(data, &done)
}

// sendFirst sends the first chunk until it is answered: on a cluster the connected node may not know yet that another one
// subscribes. No responders means that no server received it.
func sendFirst(ctx context.Context, nc *nats.Conn, sub *nats.Subscription, subject string, chunk []byte) error {
	tick := time.NewTicker(firstChunkPause)
	defer tick.Stop()
	for deadline := time.Now().Add(firstChunkWait); ; {
		if err := nc.PublishRequest(subject, sub.Subject, chunk); err != nil {
			return err
		}
		_, err := answered(ctx, sub)
		if !errors.Is(err, nats.ErrNoResponders) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// giveUp ends a transfer early and waits until the server has confirmed that: from then on the stream exists in part or not
// at all, and can be removed. Without it the server would notice after five seconds.
func giveUp(ctx context.Context, nc *nats.Conn, sub *nats.Subscription, subject string, ended bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWait)
	defer cancel()
	if !ended && nc.PublishRequest(subject, sub.Subject, nil) != nil {
		return
	}
	for {
		msg, err := sub.NextMsgWithContext(ctx)
		if err != nil || len(msg.Data) > 0 { // no subscriber any more, or the result of the transfer
			return
		}
	}
}

// answered waits for the answer to the next chunk: empty, or at the end the stream, or at any time an error.
func answered(ctx context.Context, sub *nats.Subscription) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, idleWait, fmt.Errorf("the server has not answered for %s", idleWait))
	defer cancel()
	msg, err := sub.NextMsgWithContext(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	var failed struct {
		Error *jetstream.APIError `json:"error"`
	}
	if len(msg.Data) > 0 {
		if err := json.Unmarshal(msg.Data, &failed); err != nil {
			return nil, err
		}
		if failed.Error != nil {
			return nil, failed.Error
		}
	}
	return msg.Data, nil
}
