package topology

import (
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// TestWhatGrowsHasABound: each stream that a log may have is in the table. It has a bound at which new messages are refused, or a time
// after which old ones are removed, or a reason to have neither; and something bounds the part of one key.
func TestWhatGrowsHasABound(t *testing.T) {
	log, rows := Log{Lanes: 1}, slices.Clone(Grows)
	for _, name := range Streams(1) {
		i := slices.IndexFunc(rows, func(g Growth) bool { return g.Stream == name || g.Stream+"0" == name })
		if i < 0 {
			t.Errorf("stream %s is not in the table: who makes it grow, and what bounds that?", name)
			continue
		}
		g := rows[i]
		rows = slices.Delete(rows, i, i+1)
		made, _ := log.AsMade(name, jetstream.StreamConfig{Name: name, Replicas: 1, MaxBytes: 1 << 20}) // the bytes of a command stream are the operator's
		bounded := made.MaxBytes > 0 || made.MaxMsgs > 0
		if made.Name != name || bounded != (g.Full != "") || bounded == (g.Unbounded != "") || g.By == "" || g.Share == "" {
			t.Errorf("stream %s with at most %d bytes and %d messages has the row %+v", name, made.MaxBytes, made.MaxMsgs, g)
		}
		if bounded && made.Discard != jetstream.DiscardNew {
			t.Errorf("stream %s removes old messages at its bound, which no writer notices", name)
		}
	}
	for _, g := range rows {
		t.Errorf("there is no stream %s", g.Stream)
	}
}
