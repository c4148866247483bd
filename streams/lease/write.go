package lease

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// beside runs a write in another goroutine and returns the function it returns to Run. After a crash in between the bucket
// has the write or not, and it expires.
func (m *Manager) beside(write func() (apply func())) {
	m.writing++
	m.workers.Go(func() {
		m.slots <- struct{}{}
		apply := write()
		<-m.slots
		m.results <- apply
	})
}

// attempt bounds one exchange with the server.
func (m *Manager) attempt() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), TTL/renewals)
}

// put writes a key that stays for so many TTLs.
func (m *Manager) put(key string, since time.Time, stay int, expected uint64) (uint64, error) {
	value, err := json.Marshal(record{Server: m.server, Nonce: m.nonce, Since: since, Started: m.started})
	if err != nil {
		return 0, err
	}
	ctx, cancel := m.attempt()
	defer cancel()
	return m.bucket.put(ctx, key, value, time.Duration(stay)*TTL, expected)
}

// remove deletes a key, which notifies the watchers.
func (m *Manager) remove(key string, expected uint64) error {
	ctx, cancel := m.attempt()
	defer cancel()
	return m.bucket.remove(ctx, key, expected)
}

// renew announces the server and, less often, renews what it holds.
func (m *Manager) renew() {
	if m.ticks++; m.ticks%rewatchEvery == 0 {
		m.rewatch = true
	}
	for _, key := range m.failing {
		delete(m.acquiring, key)
	}
	m.failing = nil
	now := time.Now()
	gap := now.Sub(m.acked)
	if gap > TTL/2 {
		m.live = time.Time{}
	}
	// An update was missed, or the watcher reads from a copy that has stopped.
	if m.view.servers[m.server].revision < m.announced && gap < TTL/2 && m.ticks%renewals == 0 {
		m.live, m.rewatch = time.Time{}, true
	}
	for i := range m.view.leases {
		if e := &m.view.leases[i]; e.unknown && now.Sub(e.seen) > TTL {
			m.rewatch = true
		}
	}
	if m.stopping {
		return
	}
	if !m.announcing {
		m.announcing = true
		m.beside(func() func() {
			sent := time.Now()
			revision, err := m.put(serverKey(m.group, m.server), sent.UTC(), announcementsStay, whatever)
			return func() { m.announcedAt(sent, revision, err) }
		})
	}
	for _, t := range m.held {
		if now.Sub(t.written) >= leaseRenewal*TTL && t.ctx.Err() == nil {
			m.renewLease(t, t.revision)
		}
	}
}

func (m *Manager) announcedAt(sent time.Time, revision uint64, err error) {
	m.announcing = false
	if err != nil {
		if natsx.Transient(err) {
			m.mover.Unanswered() // an election, or this node is cut off from the others and its pings are answered
		}
		m.log.Debug("server not announced", "err", err)
		return
	}
	m.mover.Answered()
	now := time.Now()
	if m.live.IsZero() || now.Sub(m.acked) > TTL/2 {
		m.live = now
	}
	if now.Sub(m.acked) >= announcementsStay*TTL {
		m.back = now
	}
	m.announced, m.acked = revision, now
	m.signals.announced.Send(sent)
}

// renewLease writes a held lease again, with an expected revision, once per tick.
func (m *Manager) renewLease(t *term, expected uint64) {
	if t.writing || time.Since(t.tried) < TTL/renewals/2 {
		return
	}
	t.writing, t.tried = true, time.Now()
	m.beside(func() func() {
		revision, err := m.put(leaseKey(m.group, t.key), t.since, leasesStay, expected)
		if err == nil {
			return func() {
				t.revision, t.written = revision, time.Now()
				m.renewed(t)
			}
		}
		var conflict *conflictError
		if !errors.As(err, &conflict) {
			return func() {
				m.log.Debug("lease not renewed", "key", t.key, "err", err) // and kept: see doc.go
				m.renewed(t)
			}
		}
		rec, actual := record{}, conflict.actual
		if actual != 0 { // either an own renewal whose answer was lost, or it expired, or another server has it
			ctx, cancel := m.attempt()
			defer cancel()
			if rec, actual, err = m.look(ctx, t.key); err != nil {
				return func() { m.renewed(t) }
			}
		}
		return func() {
			switch rec.Nonce {
			case m.nonce:
				t.revision = max(t.revision, actual)
			case "":
				t.revision, t.written = actual, time.Time{} // renewed at the next tick
			default:
				t.cancel(ErrLost)
			}
			m.renewed(t)
		}
	})
}

// acquire takes a free lease.
func (m *Manager) acquire(key int, work func(context.Context, int) error) {
	m.acquiring[key] = true
	expected := m.view.leases[key].revision
	m.beside(func() func() {
		now := time.Now().UTC()
		revision, err := m.put(leaseKey(m.group, key), now, leasesStay, expected)
		return func() {
			delete(m.acquiring, key)
			if err == nil {
				m.start(key, revision, now, work)
				return
			}
			// Another server was faster, or the view lags: the key has another revision, and the watcher will show its holder.
			var conflict *conflictError
			if refused := errors.As(err, &conflict); refused && m.view.leases[key].revision <= expected {
				m.view.leases[key] = entry{revision: conflict.actual, unknown: conflict.actual != 0, seen: time.Now()}
			} else if !refused {
				m.log.Debug("lease not acquired", "key", key, "err", err)
				m.acquiring[key], m.failing = true, append(m.failing, key)
			}
		}
	})
}

// start starts the work of a lease that was acquired.
func (m *Manager) start(key int, revision uint64, now time.Time, work func(context.Context, int) error) {
	if e := &m.view.leases[key]; e.revision < revision {
		*e = entry{rec: record{Server: m.server, Nonce: m.nonce, Since: now}, revision: revision, seen: time.Now()}
	}
	t := newTerm(key, revision, now)
	m.held[key] = t
	m.log.Info("lease acquired", "key", key)
	if m.stopping {
		t.leave()
	}
	m.workers.Go(func() {
		t.work(work, m.log)
		m.exited <- key
	})
}

// finish is called when a term's work has returned for good.
func (m *Manager) finish(key int) {
	t := m.held[key]
	delete(m.held, key)
	cause := context.Cause(t.ctx)
	t.cancel(ErrReleased)
	if errors.Is(cause, ErrLost) {
		m.log.Warn("lease lost", "key", key)
		return
	}
	if t.writing {
		t.leaving, m.acquiring[key] = true, true // once the revision is known
		return
	}
	m.release(key, t.revision)
}

// release deletes a lease, with an expected revision. After a crash before that it expires.
func (m *Manager) release(key int, revision uint64) {
	if m.unreachable {
		return
	}
	m.acquiring[key] = true // the view shows it as this server's until this is done
	m.beside(func() func() {
		err := m.remove(leaseKey(m.group, key), revision)
		return func() {
			if err == nil {
				delete(m.acquiring, key)
				return
			}
			// Retried at the next tick, with the revision that the watcher shows then.
			m.log.Debug("lease not released", "key", key, "err", err)
			m.failing = append(m.failing, key)
			m.unreachable = m.stopping && natsx.Transient(err)
		}
	})
}

// renewed ends a renewal. Work that ended waits for its revision.
func (m *Manager) renewed(t *term) {
	t.writing = false
	if t.leaving {
		m.release(t.key, t.revision)
	}
}

// startStop withdraws the announcement, so that the others take over at once, and gives everything up.
func (m *Manager) startStop() {
	m.stopping = true
	m.beside(func() func() {
		err := m.remove(serverKey(m.group, m.server), whatever)
		return func() {
			if err != nil {
				m.log.Debug("announcement not withdrawn; it expires", "err", err)
			}
		}
	})
	for _, t := range m.held {
		t.leave()
	}
}
