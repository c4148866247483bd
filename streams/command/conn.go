package command

import (
	"context"
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

// link follows the connection. It is owned by the goroutine of Run.
//
// It reads the connection's state and not the status events, which are dropped when Run is late to read them.
type link struct {
	lanes      *Lanes
	ctx        context.Context
	up         bool
	reconnects uint64
	checking   bool // Options.Same is running
	again      bool // the connection changed since
	result     chan bool
}

// update notices that the connection was lost or restored.
func (l *link) update() {
	up, reconnects := l.lanes.nc.IsConnected(), l.lanes.nc.reconnects()
	if !up {
		l.lanes.online.Store(false)
	} else if !l.up || reconnects != l.reconnects {
		l.lanes.online.Store(false)
		l.check()
	}
	l.up, l.reconnects = up, reconnects
}

// check checks whether the log is the same. A line that another log accepted could be refused by this one.
func (l *link) check() {
	switch {
	case l.checking:
		l.again = true
	case l.lanes.opts.Same == nil:
		l.confirmed(true)
	default:
		l.checking = true
		go func() { l.result <- l.lanes.opts.Same(l.ctx) }()
	}
}

// confirmed goes online again. Messages in flight may have been lost in either direction: they are sent again now instead
// of after RetryAfter.
func (l *link) confirmed(same bool) {
	l.checking = false
	switch {
	case !same:
	case l.again:
		l.again = false
		l.check()
	case l.lanes.nc.IsConnected():
		l.lanes.online.Store(true)
		l.lanes.sweep(true)
	}
}

// wait waits for the check in progress.
func (l *link) wait() {
	if l.checking {
		<-l.result
	}
}
