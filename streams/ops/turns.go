package ops

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// turns bounds what reads without an index cost a server: one runs at a time, and after it there is a rest, so that together they
// take a share of the time however many callers there are. A client has one in the line; its others wait behind that, where they
// delay no other client. It is safe for concurrent use; the zero value is ready. A crash ends what waits.
type turns struct {
	mu   sync.Mutex
	line chan struct{}            // holds a token while one runs or the rest after it lasts
	by   map[string]chan struct{} // likewise, of a client that has one in the line
	wait map[string]int           // how many of a client run or wait
}

const (
	// turnRest is the ratio of the rest after a turn to the turn.
	turnRest = 4
	// mostRest bounds the rest after a slow turn: one that waits from then on still has its turn.
	mostRest = turnWait / 2
	// turnWait is how long a request waits for its turn.
	turnWait = 5 * time.Second
	// turnsMost is how many requests of a client run or wait.
	turnsMost = 4
)

// take waits for the turn of a client, who calls end after it.
func (t *turns) take(ctx context.Context, client string) (end func(), err error) {
	late := &Refusal{Code: Overloaded, Message: fmt.Sprintf("searches before this one took longer than %s; retry", turnWait)}
	ctx, cancel := context.WithTimeoutCause(ctx, turnWait, late)
	defer cancel()
	line, mine, err := t.enter(client)
	if err != nil {
		return nil, err
	}
	for _, gate := range []chan struct{}{mine, line} {
		select {
		case gate <- struct{}{}:
		case <-ctx.Done():
			if gate == line {
				<-mine
			}
			t.leave(client)
			return nil, context.Cause(ctx)
		}
	}
	began := time.Now()
	return func() {
		time.AfterFunc(min(turnRest*time.Since(began), mostRest), func() { <-line })
		<-mine
		t.leave(client)
	}, nil
}

func (t *turns) enter(client string) (line, mine chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wait[client] == turnsMost {
		why := fmt.Sprintf("%d searches of this key run or wait at this server; wait for one, then retry", turnsMost)
		return nil, nil, &Refusal{Code: Overloaded, Message: why}
	}
	if t.line == nil {
		t.line, t.by, t.wait = make(chan struct{}, 1), map[string]chan struct{}{}, map[string]int{}
	}
	if t.by[client] == nil {
		t.by[client] = make(chan struct{}, 1)
	}
	t.wait[client]++
	return t.line, t.by[client], nil
}

func (t *turns) leave(client string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wait[client]--; t.wait[client] == 0 {
		delete(t.wait, client)
		delete(t.by, client)
	}
}
