package projtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth/authtest"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Lanes is how many lanes the log has.
const Lanes = 2

// Rig is a log on a server of its own, whose readers have no key. Write, Publish and Step may be called by many goroutines;
// fields are for a test that calls none of them at the same time, or holds Mu.
type Rig struct {
	T      testing.TB
	Server *streamtest.Server
	JS     jetstream.JetStream
	Log    topology.Log

	Mu      sync.Mutex    // guards what follows
	Last    [Lanes]uint64 // sequence written last
	Covered [Lanes]uint64 // commands, by the steps of each lane
	Clock   time.Time     // lane time, a second later with each step
	Claims  [Lanes]uint32 // highest coupon number by lane
}

// New starts a server and creates an empty log whose lane time is 2026-01-01.
func New(t testing.TB) *Rig {
	t.Helper()
	server := streamtest.Start(t, authtest.Servers(Lanes))
	js := server.JetStream(t)
	log, err := topology.Ensure(t.Context(), js, topology.Spec{Lanes: Lanes, KeyFingerprint: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return &Rig{T: t, Server: server, JS: js, Log: log, Clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

// Write writes a step of a lane; each @ in its lines becomes its lane time. It returns the message's sequence.
func (r *Rig) Write(lane int, lines ...string) uint64 {
	r.T.Helper()
	return r.Step(lane, func(at wire.Instant) []byte {
		return []byte(strings.ReplaceAll(strings.Join(lines, "\n")+"\n", "@", at.String()))
	})
}

// Step writes a step of a lane, a second after the one before, with a payload made for its lane time.
func (r *Rig) Step(lane int, payload func(at wire.Instant) []byte) uint64 {
	r.T.Helper()
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.Clock = r.Clock.Add(time.Second)
	return r.publish(lane, r.Header(lane), payload(wire.At(r.Clock)))
}

// Header is that of a lane's next step, at the present lane time.
func (r *Rig) Header(lane int) nats.Header {
	n := r.Covered[lane] + 1
	return streamtest.Sealed(eventlog.Header{Commands: [2]uint64{n, n}, CommandTime: r.Clock, LaneTime: r.Clock, Owner: "rig"}.Encode())
}

// Publish writes a message with the given headers, unchanged.
func (r *Rig) Publish(lane int, header nats.Header, payload []byte) uint64 {
	r.T.Helper()
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return r.publish(lane, header, payload)
}

func (r *Rig) publish(lane int, header nats.Header, payload []byte) uint64 {
	r.T.Helper()
	ack, err := r.JS.PublishMsg(context.Background(), &nats.Msg{Subject: topology.Evt(lane), Header: header, Data: payload})
	if err != nil {
		r.T.Error(err) // not Fatal: the caller may be another goroutine than the test's
		return 0
	}
	r.Last[lane] = ack.Sequence
	if header.Get(topology.HeaderCommands) != "" {
		r.Covered[lane]++
	}
	return ack.Sequence
}

// Digest is the content of the read tables of a database, a line per table.
func Digest(t testing.TB, pool *pgxpool.Pool) (text string) {
	t.Helper()
	const sql = `SELECT string_agg(relation || ' ' || row_count || ' ' || digest || E'\n', '' ORDER BY relation) FROM scrip.digest()`
	if err := pool.QueryRow(t.Context(), sql).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

// Reached waits until the read tables of a database, which may not be there yet, have the events of a lane up to a sequence.
func Reached(t testing.TB, pool *pgxpool.Pool, lane int, sequence uint64) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig) // the pool's may be what the test breaks
	streamtest.Must(t, err)
	defer conn.Close(context.Background()) //nolint:errcheck
	streamtest.Eventually(t, fmt.Sprintf("the read tables have message %d of lane %d", sequence, lane), func() (there bool) {
		const sql = `SELECT EXISTS (SELECT 1 FROM scrip.checkpoint WHERE projection = 'tables' AND lane = $1 AND sequence >= $2)`
		err := conn.QueryRow(t.Context(), sql, lane, int64(sequence)).Scan(&there)
		if pg := new(pgconn.PgError); errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "3F000") { // no table, no schema
			return false
		}
		streamtest.Must(t, err)
		return there
	})
}

// Hurried is the machine's clock, but waits take a fiftieth of their time: for tests of what goes on after a pause.
const Hurried = streamtest.Hurried(50)
