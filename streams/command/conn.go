package command

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// conn is the connection: natsConn, or one without a server in tests. The methods of *nats.Conn mean what they mean there.
type conn interface {
	natsx.Conn
	NewInbox() string
	MaxPayload() int64
	PublishMsg(*nats.Msg) error
	StatusChanged(...nats.Status) chan nats.Status
	RemoveStatusListener(chan nats.Status)
	// reconnects returns how often the connection was made again.
	reconnects() uint64
	// listen calls receive for each message on the subject, in one goroutine. No call is under way when stop has returned.
	listen(subject string, receive func(*nats.Msg)) (stop func(), err error)
}

type natsConn struct{ *nats.Conn }

func (n natsConn) reconnects() uint64 { return n.Stats().Reconnects }

func (n natsConn) listen(subject string, receive func(*nats.Msg)) (stop func(), err error) {
	sub, err := n.Subscribe(subject, receive)
	if err != nil {
		return nil, fmt.Errorf("subscribing to outcomes: %w", err)
	}
	quiet := make(chan struct{})
	sub.SetClosedHandler(func(string) { close(quiet) })
	if !sub.IsValid() {
		return nil, nats.ErrConnectionClosed // its goroutine may have ended before the handler was set
	}
	stop = func() {
		_ = sub.Unsubscribe() // fails only when it has ended already; quiet is closed in either case
		<-quiet
	}
	// What is pending here is bounded by the lines in flight; a dropped answer would cost its caller RetryAfter.
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		stop()
		return nil, fmt.Errorf("raising the limits of the outcome inbox: %w", err)
	}
	return stop, nil
}
