package natsx_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// conn is a connection that is at one of several nodes.
type conn struct {
	mu      sync.Mutex
	nodes   int
	moved   []time.Duration // when it moved
	started time.Time
	away    bool
}

func (c *conn) IsConnected() bool { return !c.away }
func (c *conn) Servers() []string { return make([]string, c.nodes) }

func (c *conn) ForceReconnect() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved = append(c.moved, time.Since(c.started))
	return nil
}

// TestMover: when a connection whose requests are not answered moves. Requests fail every 100 ms.
func TestMover(t *testing.T) {
	// Patience is 2 to 4 s. A node that is left is given as long again; when all were tried the connection stays for 15 s.
	type span struct{ from, to time.Duration }
	for name, test := range map[string]struct {
		nodes    int
		answered func(now time.Duration) bool // beside the requests that fail
		away     bool
		moves    []span
	}{
		"nothing is answered":      {nodes: 3, moves: []span{{2, 4}, {4, 8}, {6, 12}, {21, 28}, {23, 32}, {25, 36}}},
		"there is one node":        {nodes: 1},
		"it is between two nodes":  {nodes: 3, away: true},
		"another user is answered": {nodes: 3, answered: func(now time.Duration) bool { return now%(2*time.Second) == 0 }},
		"the second node answers":  {nodes: 2, answered: func(now time.Duration) bool { return now >= 4*time.Second }, moves: []span{{2, 4}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &conn{nodes: test.nodes, started: time.Now(), away: test.away}
				m := natsx.NewMover(c)
				for now := time.Duration(0); now < 36500*time.Millisecond; now += 100 * time.Millisecond {
					m.Unanswered()
					if test.answered != nil && test.answered(now) {
						m.Answered()
					}
					<-time.After(100 * time.Millisecond)
				}
				synctest.Wait()
				if len(test.moves) == 0 && len(c.moved) > 0 || len(c.moved) < len(test.moves) {
					t.Fatalf("it moved after %s, expected %d moves", c.moved, len(test.moves))
				}
				for i, s := range test.moves {
					if at := c.moved[i]; at < s.from*time.Second || at > s.to*time.Second+100*time.Millisecond*time.Duration(i+1) {
						t.Errorf("move %d was after %s, expected %d to %d s", i+1, at, s.from, s.to)
					}
				}
				if test.answered != nil && len(c.moved) != len(test.moves) {
					t.Errorf("it moved %d times after an answer: %s", len(c.moved)-len(test.moves), c.moved)
				}
			})
		})
	}
}
