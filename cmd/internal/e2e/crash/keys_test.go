package crash

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestKeyChangesUnderKillNine kills scrip serve at random moments while keys are made, replaced and revoked. Each answered change
// is there after the restart, in force and recorded; no other is half there: no key has ended without the one that replaces it.
func TestKeyChangesUnderKillNine(t *testing.T) {
	t.Parallel()
	r := newRuns(t, 2)
	s := e2e.NewServer(t, "--nats-listen", streamtest.Address(t), "--lanes", "1", "--roles", "lanes,api")
	s.Up()
	book := e2e.NewKeyBook()
	for r.next() {
		var answers atomic.Int64
		running, stop := context.WithCancel(t.Context())
		enough := make(chan struct{})
		after := 1 + r.Int64N(60)
		var workers sync.WaitGroup
		for w := range 4 {
			nc, err := nats.Connect(s.Desc.NATSURL, nats.NoReconnect())
			if err != nil {
				t.Fatal(err)
			}
			rng := r.stream(r.n*4 + w)
			workers.Go(func() {
				defer nc.Close()
				for up := true; up; {
					up = changeKey(running, t, nc, book, book.Next(rng), func() {
						if answers.Add(1) == after {
							close(enough)
						}
					})
				}
			})
		}
		select {
		case <-enough:
		case <-time.After(3 * time.Minute):
			stop()
			t.Fatalf("round %d: the changes stand still", r.n)
		}
		s.Kill() // the other changes are anywhere between two steps
		stop()
		workers.Wait()
		s.Up()
		book.Judge(t, s.Desc.NATSURL)
	}
	t.Logf("soak: %d kills while keys change", r.n)
	t.Logf("%d answered changes", book.Changes())
	if code := s.Stop(); code != 0 {
		t.Errorf("the clean stop ended with exit code %d", code)
	}
}

// changeKey sends a change, books its answer and then calls answered. It returns false without an answer: the server was killed.
func changeKey(ctx context.Context, t *testing.T, nc *nats.Conn, book *e2e.KeyBook, c e2e.KeyChange, answered func()) bool {
	request := map[string]any{"key": c.ID}
	if c.Action == "create" {
		request = map[string]any{"name": c.Name, "role": "support"}
	}
	body, err := json.Marshal(request)
	if err != nil {
		t.Error(err)
		return false
	}
	reply, err := nc.RequestWithContext(ctx, "scrip.access."+c.Action, body)
	if err != nil {
		return false
	}
	if code := reply.Header.Get("Nats-Service-Error-Code"); code != "" {
		if code != "503" { // after a 503 it may be there or not
			t.Errorf("%+v: %s %s", c, code, reply.Header.Get("Nats-Service-Error"))
		}
		return code == "503"
	}
	var answer struct{ Data ops.MadeKey }
	if err := json.Unmarshal(reply.Data, &answer); err != nil || answer.Data.ID == "" {
		t.Errorf("%s was answered %s, %v", c.Action, reply.Data, err)
		return false
	}
	book.Answered(c, answer.Data.Key, answer.Data.Secret)
	answered()
	return true
}
