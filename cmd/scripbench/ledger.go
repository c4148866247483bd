package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// ledger is who has been reached, and when. It is what a worker that does nothing does.
type ledger struct {
	n    int
	at   time.Time
	seen []atomic.Uint64 // a bit for each customer
	lat  *latencies

	reached, twice, strange, early atomic.Int64
	first, last                    atomic.Int64 // nanoseconds after the instant
	all                            chan struct{}
	once                           sync.Once
}

func newLedger(n int) *ledger {
	l := &ledger{n: n, seen: make([]atomic.Uint64, (n+63)/64), lat: newLatencies(), all: make(chan struct{})}
	l.first.Store(1<<63 - 1)
	return l
}

// reach notes customers who were reached now. who spreads workers.
func (l *ledger) reach(who int, customers ...int) { l.reachedAt(time.Now(), who, customers...) }

// reachedAt notes customers who were reached then.
func (l *ledger) reachedAt(then time.Time, who int, customers ...int) {
	late := then.Sub(l.at)
	if late < 0 {
		l.early.Add(int64(len(customers)))
	}
	fresh := 0
	for _, i := range customers {
		if i < 0 || i >= l.n {
			l.strange.Add(1)
			continue
		}
		bit := uint64(1) << (i % 64)
		if l.seen[i/64].Or(bit)&bit != 0 {
			l.twice.Add(1)
			continue
		}
		fresh++
	}
	if fresh == 0 {
		return
	}
	l.lat.recordMany(who, late, fresh)
	raise(&l.last, int64(late), func(old int64) bool { return int64(late) > old })
	raise(&l.first, int64(late), func(old int64) bool { return int64(late) < old })
	if l.reached.Add(int64(fresh)) == int64(l.n) {
		l.once.Do(func() { close(l.all) })
	}
}

func raise(v *atomic.Int64, to int64, better func(old int64) bool) {
	for {
		old := v.Load()
		if !better(old) || v.CompareAndSwap(old, to) {
			return
		}
	}
}

// wait until everybody was reached. It gives up when nobody more was for as long as answers may take.
func (l *ledger) wait(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	before, since := int64(0), l.at
	for {
		select {
		case <-l.all:
			return nil
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d were reached: %w", l.reached.Load(), l.n, context.Cause(ctx))
		}
		if now := l.reached.Load(); now != before {
			before, since = now, time.Now()
		}
		if time.Since(since) > patience {
			return fmt.Errorf("%d of %d were reached, and nobody more for %s", before, l.n, patience)
		}
	}
}

// result of a run. It fails if anybody was reached early, or twice, or not at all. Nobody may reach any more.
func (l *ledger) result() (DueRun, error) {
	if twice, strange, early := l.twice.Load(), l.strange.Load(), l.early.Load(); l.reached.Load() != int64(l.n) || twice+strange+early > 0 {
		return DueRun{}, fmt.Errorf("%d of %d were reached, %d more than once, %d before it was time, and %d who did not ask", l.reached.Load(), l.n, twice, early, strange)
	}
	return DueRun{
		Done: l.n, Lateness: l.lat.result(),
		First: time.Duration(l.first.Load()).Seconds(), All: time.Duration(l.last.Load()).Seconds(),
	}, nil
}

// customerPrefix is what customer ids begin with; behind it stands a number.
const customerPrefix = "customer-"

func customerID(i int) string { return customerPrefix + strconv.Itoa(i) }

var errCustomer = errors.New("not a customer's id")

// numberOf is the number at the end of a customer id, with or without something before it.
func numberOf(id []byte) (int, error) {
	at := bytes.LastIndex(id, []byte(customerPrefix))
	if at < 0 {
		return 0, fmt.Errorf("%q: %w", id, errCustomer)
	}
	n, digits := 0, id[at+len(customerPrefix):]
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("%q: %w", id, errCustomer)
		}
		n = 10*n + int(c-'0')
	}
	if len(digits) == 0 || len(digits) > 12 {
		return 0, fmt.Errorf("%q: %w", id, errCustomer)
	}
	return n, nil
}
