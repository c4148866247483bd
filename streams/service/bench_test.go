package service

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/streams/lane"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// BenchmarkRequests measures one command per request, fsynced: callers, NATS, service and a real lane in this process.
// What counts is the CPU time of one request, all of them together, and how many share a message; what a second brings
// depends on who else uses the machine. Profile it with -cpuprofile.
//
//	claim      each customer's first, by 256 callers
//	repeat     the same customers again
//	sold-out   on a campaign that has one coupon
//	invalid    refused by the service itself: what request and reply cost without a lane
//	lonely     claims by one caller
func BenchmarkRequests(b *testing.B) {
	for _, w := range []struct {
		name    string
		callers int
		body    func(i int) string
		subject string
	}{
		{"claim", 256, func(i int) string { return `{"customer_id":"customer-` + strconv.Itoa(i) + `"}` }, "scrip.claim.hot"},
		{"repeat", 256, func(i int) string { return `{"customer_id":"customer-` + strconv.Itoa(i%1000) + `"}` }, "scrip.claim.hot"},
		{"sold-out", 256, func(i int) string { return `{"customer_id":"customer-` + strconv.Itoa(i) + `"}` }, "scrip.claim.gone"},
		{"invalid", 256, func(int) string { return `{}` }, "scrip.claim.hot"},
		{"lonely", 1, func(i int) string { return `{"customer_id":"customer-` + strconv.Itoa(i) + `"}` }, "scrip.claim.hot"},
	} {
		b.Run(w.name, func(b *testing.B) {
			s := benchService(b)
			for _, c := range []struct{ name, codes string }{{"hot", strconv.Itoa(b.N + 1000)}, {"gone", "1"}} {
				reply, err := s.nc.Request("scrip.campaign.create", []byte(`{"campaign":"`+c.name+`","codes":`+c.codes+`}`), 10*time.Second)
				if err != nil || !strings.Contains(string(reply.Data), `"created"`) {
					b.Fatal(reply, err)
				}
			}
			load := &load{subject: w.subject, body: w.body, total: int64(b.N), done: make(chan struct{})}
			before, cpu := s.lines.Counters(), cpuTime()
			b.ResetTimer()
			load.run(b, s.nc.ConnectedUrl(), w.callers)
			b.StopTimer()
			after := s.lines.Counters()
			b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/float64(b.N)/1e3, "cpu-µs/op")
			if messages := after.Messages - before.Messages; messages > 0 {
				b.ReportMetric(float64(after.Lines-before.Lines)/float64(messages), "lines/message")
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "op/s")
		})
	}
}

// load sends total requests; a caller sends the next one when it was answered. It costs little itself: no goroutine per caller.
type load struct {
	subject string
	body    func(i int) string
	total   int64
	sent    atomic.Int64
	got     atomic.Int64
	done    chan struct{}
}

func (l *load) run(b *testing.B, url string, callers int) {
	var conns []*nats.Conn
	for range min(4, callers) {
		nc, err := nats.Connect(url)
		if err != nil {
			b.Fatal(err)
		}
		defer nc.Close()
		conns = append(conns, nc)
	}
	for _, nc := range conns {
		inbox := nats.NewInbox()
		send := func() {
			n := l.sent.Add(1)
			if n > l.total {
				return
			}
			_ = nc.PublishRequest(l.subject, inbox+".x"+strconv.FormatInt(n, 10), []byte(l.body(int(n))))
		}
		if _, err := nc.Subscribe(inbox+".*", func(m *nats.Msg) {
			if len(m.Data) == 0 || len(m.Header) > 0 {
				b.Errorf("reply %q %v", m.Data, m.Header)
			}
			send()
			if l.got.Add(1) == l.total {
				close(l.done)
			}
		}); err != nil {
			b.Fatal(err)
		}
		for range callers / len(conns) {
			send()
		}
	}
	<-l.done
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// benchService is the service of a log with one lane, and its owner.
func benchService(b *testing.B) *Service {
	srv := streamtest.Start(b, streamtest.Lanes(1), streamtest.SyncAlways)
	key := [32]byte{1, 2, 3}
	js, err := jetstream.New(srv.Conn(b))
	if err != nil {
		b.Fatal(err)
	}
	log, err := topology.Ensure(b.Context(), js, topology.Spec{Lanes: 1, KeyFingerprint: code.Fingerprint(key)})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	owner := lane.New(lane.Options{JetStream: js, Log: log, Key: key, Logger: streamtest.Logger(b)})
	running.Go(func() {
		if err := owner.Run(ctx); err != nil {
			b.Error(fmt.Errorf("the lane: %w", err))
		}
	})
	s := New(srv.Conn(b), log, code.New(key), Options{Logger: streamtest.Logger(b)})
	running.Go(func() { _ = s.Run(ctx) })
	b.Cleanup(func() {
		cancel()
		running.Wait()
	})
	<-s.Ready()
	return s
}
