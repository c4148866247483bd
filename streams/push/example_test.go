package push_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/push"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Three customers are to be reminded. The gateway refuses one of them for good. With a server of your own the URL is
// nats://127.0.0.1:4222, and its scheduler fires the reminders.
func Example() {
	url, stop, err := serveReminders("ann", "bob", "cid")
	if err != nil {
		log.Fatal(err)
	}
	defer stop()

	nc, err := nats.Connect(url, nats.MaxReconnects(-1))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		log.Fatal(err)
	}

	// At least once: a gateway that deduplicates by key delivers exactly once.
	var mu sync.Mutex
	seen := map[string]bool{}
	send := func(r push.Reminder) error {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.CustomerID == "bob":
			return fmt.Errorf("%s has no device", r.CustomerID)
		case !seen[r.Key]:
			seen[r.Key] = true
			fmt.Printf("to %s: %s %s\n", r.CustomerID, r.Campaign, r.Kind)
		}
		return nil
	}

	ctx, done := context.WithTimeout(context.Background(), time.Minute)
	defer done()
	p, err := push.New(js, push.Options{
		Name: "mobile", Since: push.FromStart(), Tries: 3, Pause: 10 * time.Millisecond,
		OnDead: func(push.DeadLetter) { done() }, // this example is over
		Logger: discard,
	})
	if err != nil {
		log.Fatal(err)
	}
	err = p.Run(ctx, func(ctx context.Context, batch []push.Reminder) error {
		var failed []int
		var why error
		for i, r := range batch {
			if err := send(r); err != nil {
				failed, why = append(failed, i), err
			}
		}
		if failed != nil {
			return &push.Partial{Failed: failed, Err: why}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	for letter, err := range push.Letters(context.Background(), js, "mobile") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("given up after %d tries: %s (%s)\n", letter.Tries, letter.Reminders[0].CustomerID, letter.Error)
	}

	// Output:
	// to ann: summer opens
	// to cid: summer opens
	// given up after 3 tries: bob (1 not delivered: bob has no device)
}

// serveReminders is a server with a log on which a reminder of each of the customers has fired.
func serveReminders(customers ...string) (url string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "scrip-example-")
	if err != nil {
		return "", nil, err
	}
	server, err := natsd.Start(natsd.Options{Listen: "127.0.0.1:0", Sync: natsd.SyncInterval, Logger: discard, StoreDir: dir})
	if err != nil {
		return "", nil, err
	}
	nc, err := nats.Connect(server.ClientURL())
	if err != nil {
		return "", nil, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return "", nil, err
	}
	ctx := context.Background()
	made, err := topology.Ensure(ctx, js, topology.Spec{Lanes: 1, KeyFingerprint: "example"})
	if err != nil {
		return "", nil, err
	}
	lines := append(streamtest.Due("summer", 1, customers...), '\n')
	h := eventlog.Header{Owner: "example", Source: eventlog.Source{Sequence: 1, Line: 1, LastR: 3}, SourceDigest: "00000000000000000000000000000000"}
	header := eventlog.Reminders(js, 0).In(made.WithKey([32]byte{1})).Sealer().Encode(h, 1, lines)
	_, err = js.PublishMsg(ctx, &nats.Msg{Subject: topology.Rmd(0), Header: header, Data: lines})
	return server.ClientURL(), func() { server.Shutdown(); _ = os.RemoveAll(dir) }, err
}
