package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"
)

// ledger records which customers were reached, and when. Workers do nothing else.
type ledger struct {
	n    int
	at   time.Time
	seen []atomic.Uint64 // a bit for each customer
	lat  *latencies

	reached, twice, invalid, early atomic.Int64
	first, last                    atomic.Int64 // nanoseconds after the instant
}

func newLedger(n int) *ledger {
	l := &ledger{n: n, seen: make([]atomic.Uint64, (n+63)/64), lat: newLatencies()}
	l.first.Store(1<<63 - 1)
	return l
}

// reach records customers who were reached now. who spreads workers.
func (l *ledger) reach(who int, customers ...int) { l.reachedAt(time.Now(), who, customers...) }

// reachedAt records customers who were reached then.
func (l *ledger) reachedAt(then time.Time, who int, customers ...int) {
	late := then.Sub(l.at)
	if late < 0 {
		l.early.Add(int64(len(customers)))
	}
	fresh := 0
	for _, i := range customers {
		if i < 0 || i >= l.n {
			l.invalid.Add(1)
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
	l.reached.Add(int64(fresh))
}

func raise(v *atomic.Int64, to int64, better func(old int64) bool) {
	for {
		old := v.Load()
		if !better(old) || v.CompareAndSwap(old, to) {
			return
		}
	}
}

// wait until all were reached. It gives up after patience without another one.
func (l *ledger) wait(ctx context.Context) error {
	before, since := int64(0), l.at
	return poll(ctx, nil, ledgerEvery, func() error {
		now := l.reached.Load()
		if now == int64(l.n) {
			return nil
		}
		if now != before {
			before, since = now, time.Now()
		}
		if time.Since(since) > patience {
			return fmt.Errorf("%d of %d were reached, and no more for %s", now, l.n, patience)
		}
		return fmt.Errorf("%w: %d of %d were reached", errWaiting, now, l.n)
	})
}

// ledgerEvery is how often wait checks.
const ledgerEvery = 5 * time.Millisecond

// result of a run. It fails if a customer was reached early, twice, or not at all. It is called after the last reach.
func (l *ledger) result() (DueRun, error) {
	if twice, invalid, early := l.twice.Load(), l.invalid.Load(), l.early.Load(); l.reached.Load() != int64(l.n) || twice+invalid+early > 0 {
		return DueRun{}, fmt.Errorf("%d of %d were reached, %d more than once, %d early, and %d unknown", l.reached.Load(), l.n, twice, early, invalid)
	}
	return DueRun{
		Done: l.n, Lateness: l.lat.result(),
		First: time.Duration(l.first.Load()).Seconds(), All: time.Duration(l.last.Load()).Seconds(),
	}, nil
}

// customerPrefix begins customer ids; a number follows.
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
