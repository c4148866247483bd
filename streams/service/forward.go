package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-4a2410e3/scrip/streams/testsignal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// forwardPending bounds the buffer of each of the forwarder's two subscriptions, in bytes.
const forwardPending = 64 << 20

// Forwarder does what the server-side subject mapping does, for a NATS server that lacks it:
//
//	scrip.cmd.<campaign>   ──> scrip.lane.<lane>.cmd.<campaign>
//	scrip.admin.<campaign> ──> scrip.lane.<lane>.admin.<campaign>
//
// with the reply subject unchanged, so that the producer itself gets the PubAck, and the headers of [forwarded]. If the
// mapping exists it receives nothing. All servers may run one: a queue group distributes the messages. A crash between
// receiving and forwarding loses a message that was not acknowledged; its producer publishes again.
type Forwarder struct {
	nc        *nats.Conn
	lanes     int
	logger    *slog.Logger
	forwarded atomic.Uint64
	refused   prometheus.Counter // reply subjects that are no inbox

	signals struct {
		subscribed testsignal.Signal[struct{}]
	}
}

// forwarded are the headers that are copied, with this server's permissions. Others could make NATS itself publish
// elsewhere (Nats-Trace-Dest) or carry instructions to JetStream.
var forwarded = []string{topology.HeaderReply, HeaderTimeout, "Scrip-Trace", nats.MsgIdHdr}

// NewForwarder prepares a forwarder for a log of that many lanes. logger may be nil.
func NewForwarder(nc *nats.Conn, lanes int, logger *slog.Logger) *Forwarder {
	return &Forwarder{nc: nc, lanes: lanes, logger: cmp.Or(logger, slog.Default()), refused: repliesRefused("forward")}
}

// Forwarded returns how many messages it has forwarded.
func (f *Forwarder) Forwarded() uint64 { return f.forwarded.Load() }

// Describe makes a Forwarder a prometheus.Collector.
func (f *Forwarder) Describe(to chan<- *prometheus.Desc) { f.refused.Describe(to) }

// Collect makes a Forwarder a prometheus.Collector.
func (f *Forwarder) Collect(to chan<- prometheus.Metric) { f.refused.Collect(to) }

// Run forwards until ctx ends or the connection is closed.
func (f *Forwarder) Run(ctx context.Context) error {
	closed := f.nc.StatusChanged(nats.CLOSED)
	defer f.nc.RemoveStatusListener(closed)
	for pattern, subject := range map[string]func(int, string) string{
		topology.CmdPattern:   topology.LaneCmdFor,
		topology.AdminPattern: topology.LaneAdminFor,
	} {
		sub, err := f.nc.QueueSubscribe(pattern, Name, func(m *nats.Msg) { f.forward(m, subject) })
		if err != nil {
			return fmt.Errorf("subscribing to %s: %w", pattern, err)
		}
		done := make(chan struct{})
		sub.SetClosedHandler(func(string) { close(done) })
		if !sub.IsValid() {
			return nats.ErrConnectionClosed
		}
		defer func() { <-done }()
		defer func() {
			// Drained, not dropped: no other forwarder gets the messages delivered here. Without a server there is no target, and
			// draining would wait for one.
			end := sub.Drain
			if !f.nc.IsConnected() {
				end = sub.Unsubscribe
			}
			if err := end(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
				f.logger.Warn("the forwarder's subscription did not end cleanly", "subject", pattern, "err", err)
			}
		}()
		if err := sub.SetPendingLimits(forwardPending/pendingEach, forwardPending); err != nil {
			return fmt.Errorf("raising the limits of %s: %w", pattern, err)
		}
	}
	f.signals.subscribed.Send(struct{}{})
	select {
	case <-ctx.Done():
		return nil
	case <-closed:
		return nats.ErrConnectionClosed
	}
}

// forward forwards a message. JetStream publishes the PubAck to the message's reply subject with this server's permissions,
// so a message whose reply subject is no inbox is dropped; its producer gets no PubAck. The campaign token is hashed as NATS
// does it, whatever it is: only a lane can report to the producer that the name is invalid.
func (f *Forwarder) forward(m *nats.Msg, subject func(int, string) string) {
	if m.Reply != "" && !topology.MayReply(m.Reply) {
		f.refused.Inc()
		return
	}
	campaign := m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]
	to := &nats.Msg{
		Subject: subject(topology.LaneOf(campaign, f.lanes), campaign),
		Reply:   m.Reply, Data: m.Data,
	}
	for _, name := range forwarded {
		if values := m.Header[name]; len(values) > 0 {
			if to.Header == nil {
				to.Header = nats.Header{}
			}
			to.Header[name] = values
		}
	}
	if err := f.nc.PublishMsg(to); err != nil {
		f.logger.Error("a producer's message was not forwarded; its producer gets no PubAck and publishes again", "subject", m.Subject, "err", err)
		return
	}
	f.forwarded.Add(1)
}
