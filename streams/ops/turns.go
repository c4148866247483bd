package ops

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// turns bounds what reads without an index cost a server: few run at a time, however many callers there are. A client has still
// fewer that run; its others wait behind them, where they delay no other client. It is safe for concurrent use; the zero value is
// ready. A crash ends what waits.
type turns struct {
	mu   sync.Mutex
	line chan struct{}            // holds a token for each that runs, and while the rest after one lasts
	by   map[string]chan struct{} // likewise, of a client that has one in the line
	wait map[string]int           // how many of a client run or wait
}

// turn is a kind of reads that take turns.
type turn struct {
	what string // in messages
	// beside is how many run at a time, and each how many of a client; most is how many of a client run or wait.
	beside, each, most int
	// wait is how long a request waits for its turn.
	wait time.Duration
	// rest is the ratio of the rest after a turn to the turn, so that all together take a share of the time; mostRest bounds it after a
	// slow one: one that waits from then on still has its turn.
	rest     time.Duration
	mostRest time.Duration
}

var (
	searchTurn = turn{what: "searches", beside: 1, each: 1, most: 4, wait: 5 * time.Second, rest: 4, mostRest: 5 * time.Second / 2}
	// A page of a list takes a second of one CPU, and the projector's processes have the same priority: with the rests they take less
	// than one CPU together. Of several clients none has both places.
	listTurn = turn{what: "lists without an index", beside: 2, each: 1, most: 2, wait: 2 * time.Second, rest: 2, mostRest: 3 * time.Second / 2}
)

// take waits for the turn of a client, who calls end after it.
func (t *turns) take(ctx context.Context, client string, of *turn) (end func(), err error) {
	late := &Refusal{Code: Overloaded, Message: fmt.Sprintf("%s before this one took longer than %s; retry", of.what, of.wait)}
	ctx, cancel := context.WithTimeoutCause(ctx, of.wait, late)
	defer cancel()
	line, mine, err := t.enter(client, of)
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
		time.AfterFunc(min(of.rest*time.Since(began), of.mostRest), func() { <-line })
		<-mine
		t.leave(client)
	}, nil
}

func (t *turns) enter(client string, of *turn) (line, mine chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wait[client] == of.most {
		why := fmt.Sprintf("%d %s of this key run or wait at this server; wait for one, then retry", of.most, of.what)
		return nil, nil, &Refusal{Code: Overloaded, Message: why}
	}
	if t.line == nil {
		t.line, t.by, t.wait = make(chan struct{}, of.beside), map[string]chan struct{}{}, map[string]int{}
	}
	if t.by[client] == nil {
		t.by[client] = make(chan struct{}, of.each)
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
