package web

import (
	"sync"

	"github.com/seed-4a2410e3/scrip/cmd/internal/status"
)

// Quota bounds what clients hold at once: all together, and each one, so that it leaves some to others. K identifies a client.
type Quota[K comparable] struct {
	mu       sync.Mutex // guards the fields below
	all, one status.Limit
	by       map[K]int64
}

// NewQuota returns a Quota that is shown as what, and what with _per_ and who for each client.
func NewQuota[K comparable](what, who string, all, one int) *Quota[K] {
	return &Quota[K]{all: status.Limit{What: what, Limit: int64(all)}, one: status.Limit{What: what + "_per_" + who, Limit: int64(one)}, by: map[K]int64{}}
}

// Take takes one for a client, or returns the limit that is reached and counts that. Exempt = the client has no limit of its own.
func (q *Quota[K]) Take(client K, exempt bool) (over *status.Limit) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case !exempt && q.by[client] >= q.one.Limit:
		over = &q.one
	case q.all.Used >= q.all.Limit:
		over = &q.all
	default:
		q.all.Used++
		q.by[client]++
		return nil
	}
	over.Refused++
	reached := *over
	return &reached
}

// Release ends what Take took.
func (q *Quota[K]) Release(client K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all.Used--
	if q.by[client]--; q.by[client] == 0 {
		delete(q.by, client)
	}
}

// Limits are for the status.
func (q *Quota[K]) Limits() []status.Limit {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.one.Used = 0
	for _, n := range q.by {
		q.one.Used = max(q.one.Used, n)
	}
	return []status.Limit{q.all, q.one}
}
