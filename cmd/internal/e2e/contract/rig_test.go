package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
)

// patience is how long a test waits for something that should come at once, on machines under load.
const patience = 2 * time.Minute

func TestMain(m *testing.M) { os.Exit(e2e.Main(m, func() { stopShared() })) }

// rig is the server that most tests share, and a few ways to talk to it.
type rig struct {
	proc       *e2e.Process
	desc       e2e.Descriptor
	nc         *nats.Conn
	db         *pgxpool.Pool
	subscriber *subscriber
}

var (
	shared     = sync.OnceValues(startShared)
	stopShared = func() {} // ends the shared server
	names      atomic.Int64
)

func startShared() (*rig, error) {
	dir, err := os.MkdirTemp("", "scrip-contract-")
	if err != nil {
		return nil, err
	}
	// An unprivileged PostgreSQL must pass through.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	r := &rig{}
	r.proc, err = e2e.Start(filepath.Join(dir, "data"), filepath.Join(dir, "serve.log"), []string{"--nats-listen", "127.0.0.1:0"}, nil)
	if err != nil {
		return nil, err
	}
	// A clean stop removes scrip.json and ends everything that ran.
	stopShared = func() {
		defer os.RemoveAll(dir)
		if code, err := r.proc.Stop(); code != 0 || err != nil {
			fmt.Fprintf(os.Stderr, "the shared server stopped with exit code %d, %v\n%s", code, err, r.proc.Output())
		}
	}
	if r.desc, err = r.proc.Ready(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, r.proc.Output())
	}
	if r.nc, err = nats.Connect(r.desc.NATSURL); err != nil {
		return nil, err
	}
	if r.subscriber, err = listen(r.nc); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(r.desc.PostgresURL)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.RuntimeParams["timezone"] = "UTC"
	config.MaxConns = 4
	r.db, err = pgxpool.NewWithConfig(context.Background(), config)
	return r, err
}

// server returns the shared server and lets the test run beside others.
func server(t *testing.T) *rig {
	t.Helper()
	t.Parallel()
	r, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// name makes the name of a campaign that no other test uses.
func (r *rig) name() string { return fmt.Sprintf("c%d", names.Add(1)) }

// lane is the lane of a campaign: FNV-1a-32 of its name mod lanes.
func (r *rig) lane(campaign string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(campaign)) // cannot fail
	return int(h.Sum32() % uint32(r.desc.Lanes))
}

type pubAck struct {
	Stream string          `json:"stream"`
	Seq    uint64          `json:"seq"`
	Error  json.RawMessage `json:"error"`
}

// post publishes one message to the log and returns its acknowledgement and the outcome lines.
func (r *rig) post(t *testing.T, subject, payload string) (ack pubAck, outcomes [][]byte) {
	t.Helper()
	inbox := r.nc.NewInbox()
	sub, err := r.nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // of a test's own inbox
	ack = r.publish(t, &nats.Msg{Subject: subject, Header: nats.Header{"Scrip-Reply": {inbox}}, Data: []byte(payload)})
	msg, err := sub.NextMsg(patience)
	if err != nil {
		t.Fatalf("no outcome of what was published on %s: %v", subject, err)
	}
	if len(msg.Header) > 0 {
		t.Errorf("outcomes carry headers: %v", msg.Header)
	}
	return ack, lines(t, msg.Data)
}

// publish puts a message into the log.
func (r *rig) publish(t *testing.T, msg *nats.Msg) (ack pubAck) {
	t.Helper()
	reply, err := r.nc.RequestMsg(msg, patience)
	if err != nil {
		t.Fatalf("publishing on %s: %v", msg.Subject, err)
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil || ack.Error != nil || ack.Stream == "" || ack.Seq == 0 {
		t.Fatalf("publishing on %s was answered %s", msg.Subject, reply.Data)
	}
	return ack
}

// one publishes one line and returns its outcome.
func (r *rig) one(t *testing.T, subject, line string) []byte {
	t.Helper()
	_, outcomes := r.post(t, subject, line)
	if len(outcomes) != 1 {
		t.Fatalf("one line was answered by %d: %s", len(outcomes), bytes.Join(outcomes, []byte("\n")))
	}
	return outcomes[0]
}

// request sends a request that must get an ordinary reply.
func (r *rig) request(t *testing.T, subject, body string) []byte {
	t.Helper()
	reply, err := r.nc.Request(subject, []byte(body), patience)
	if err != nil {
		t.Fatalf("%s %s: %v", subject, body, err)
	}
	if len(reply.Header) > 0 {
		t.Errorf("the reply to %s %s has headers: %v", subject, body, reply.Header)
	}
	return reply.Data
}

// campaign creates one with those settings.
func (r *rig) campaign(t *testing.T, settings string) string {
	t.Helper()
	name := r.name()
	r.create(t, name, settings)
	return name
}

func (r *rig) create(t *testing.T, name, settings string) {
	t.Helper()
	match(t, r.request(t, "scrip.campaign.create", fill(`{"id":"create-$c","campaign":"$c",$s}`, "$c", name, "$s", settings)),
		fill(`{"id":"create-$c","status":"created","campaign":"$c"}`, "$c", name))
}

// claim claims a coupon and returns its code.
func (r *rig) claim(t *testing.T, campaign, customer string) string {
	t.Helper()
	raw := r.request(t, "scrip.claim."+campaign, fmt.Sprintf(`{"customer_id":"%s"}`, customer))
	code, _ := parse(t, raw)["code"].(string)
	if code == "" {
		t.Fatalf("claim of %s: %s", customer, raw)
	}
	return code
}

// lines takes NDJSON apart. Every line ends with a newline.
func lines(t *testing.T, data []byte) [][]byte {
	t.Helper()
	if len(data) == 0 {
		return nil
	}
	if data[len(data)-1] != '\n' {
		t.Errorf("the last line does not end with a newline: %s", data)
	}
	return bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
}

// fill replaces $name by value in pairs.
func fill(text string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(text) }
