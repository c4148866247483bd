package natsauth_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// BenchmarkRequests measures what accounts cost: claims as single requests, answered by a lane that decides nothing, from 16
// callers with the servers' credentials and with a producer's key. NATS, the service and the callers share the process.
func BenchmarkRequests(b *testing.B) {
	r := newRig(b)
	for name, nc := range map[string]*nats.Conn{"servers": r.Conn(b), "key": r.guest(b, r.keys.add(kinds["producer"])).Conn} {
		b.Run(name, func(b *testing.B) {
			var n atomic.Int64
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					body := fmt.Appendf(nil, `{"customer_id":"%s-%d-%d"}`, name, b.N, n.Add(1))
					if _, err := nc.Request("scrip.claim.summer", body, 20*time.Second); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
