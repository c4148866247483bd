package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Options of a Client; the zero value has the written defaults.
type Options struct {
	// Timeout bounds calls without a deadline of their own: a command of DoAsync and a query. Do ends with its context
	// alone. Defaults to 30 s.
	Timeout time.Duration
	// RetryAfter is how long an outcome may take before the command is sent again under the same id; later pauses are
	// longer. Defaults to 2 s.
	RetryAfter time.Duration
	// By is the user of this client, such as ann@ops1. A client with the credentials of the data directory names it with its
	// requests to the service; events show it as local:ann@ops1. For a client with a key the service ignores it.
	By string
}

// ErrClosed is the cause of errors after Close.
var ErrClosed = command.ErrClosed

// UnknownError is the error of a command that was sent and whose result is not known. Retry with its ID.
type UnknownError = command.UnknownError

// NotSentError is the error of a command that reached no server and had no effect.
type NotSentError = command.NotSentError

// Counters of a client since it was made.
type Counters = command.Counters

// MaxPending is how many commands of one lane may wait for their outcome; further calls wait.
const MaxPending = command.MaxPending

// Client is a client of one log. Any number of goroutines may use it at once; one per process is enough.
type Client struct {
	nc     *nats.Conn
	owned  bool // Close closes nc
	opts   Options
	lanes  *command.Lanes
	finder finder

	stop  context.CancelFunc
	ended chan struct{} // both goroutines have returned
	once  sync.Once
	dead  atomic.Bool
}

// Connect connects to the NATS server of a scrip log, or to the nodes of a cluster (URLs separated by commas), closes a
// silent connection after some seconds (see package natsx) and reconnects for ever. The key of a user is the user of the
// URL, nats://KEY@HOST:PORT, or a token among the options. Options of nats.go, such as credentials or a custom inbox prefix, are
// added. A missing log is reported by the first call.
func Connect(url string, opts ...nats.Option) (*Client, error) {
	nc, err := nats.Connect(url, natsx.Keyed(url, append(natsx.Options("scrip client"), opts...)...)...)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w; is `scrip serve` running there?", url, err)
	}
	c := New(nc, Options{})
	c.owned = true
	return c, nil
}

// New makes a client on a connection of the caller's: Close leaves it open. Connect it with the options of package
// natsx: with those of nats.go alone it takes six minutes to notice a node that was cut off, and a key needs natsx.Keyed.
func New(nc *nats.Conn, opts Options) *Client {
	if opts.Timeout <= 0 {
		opts.Timeout = 30 * time.Second
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &Client{
		nc:    nc,
		opts:  opts,
		ended: make(chan struct{}),
	}
	c.finder = finder{nc: nc, life: ctx, slot: make(chan struct{}, 1)}
	c.stop = stop
	c.lanes = command.New(nc, command.Options{
		RetryAfter: opts.RetryAfter, Subject: topology.LaneShop, Same: c.finder.same,
	})
	go c.run(ctx)
	return c
}

// run returns after Close or the end of the connection.
func (c *Client) run(ctx context.Context) {
	defer close(c.ended)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := c.lanes.Run(ctx); err != nil {
			return err
		}
		return ErrClosed // so that the other goroutine ends, too
	})
	g.Go(func() error { return c.finder.watch(ctx) })
	_ = g.Wait() // all waiting calls have ended; later ones check dead
	c.dead.Store(true)
}

// Close ends the client. Commands still in flight end in an *UnknownError or *NotSentError; no callback is called after
// Close has returned. Do not call it from a callback.
func (c *Client) Close() {
	c.once.Do(func() {
		c.dead.Store(true)
		c.stop()
		<-c.ended
		if c.owned {
			c.nc.Close()
		}
	})
}

// Conn returns the client's connection.
func (c *Client) Conn() *nats.Conn { return c.nc }

// Counters returns the counters as they are now.
func (c *Client) Counters() Counters { return c.lanes.Counters() }

// Log returns the UUID of the log and its number of lanes. It requests them until the service answers or ctx ends.
func (c *Client) Log(ctx context.Context) (uuid string, lanes int, err error) {
	if c.dead.Load() {
		return "", 0, ErrClosed
	}
	log, err := c.finder.log(ctx)
	if err != nil {
		return "", 0, err
	}
	return log.uuid, log.lanes, nil
}

// unknown reports whether an error leaves open whether the command had its effect.
func unknown(err error) bool {
	var u *UnknownError
	return errors.As(err, &u)
}
