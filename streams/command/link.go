package command

import "context"

// link follows the connection. It is owned by the goroutine of Run.
//
// It reads the connection's state and not the status events, which are dropped when Run is late to read them.
type link struct {
	c          *Batcher
	ctx        context.Context
	up         bool
	reconnects uint64
	checking   bool // Options.Same is running
	again      bool // the connection changed meanwhile
	result     chan bool
}

// update notices that the connection was lost or restored.
func (l *link) update() {
	up, reconnects := l.c.nc.IsConnected(), l.c.nc.reconnects()
	if !up {
		l.c.online.Store(false)
	} else if !l.up || reconnects != l.reconnects {
		l.c.online.Store(false)
		l.check()
	}
	l.up, l.reconnects = up, reconnects
}

// check checks whether the log is the same. A line that another log accepted could be refused by this one.
func (l *link) check() {
	switch {
	case l.checking:
		l.again = true
	case l.c.opts.Same == nil:
		l.confirmed(true)
	default:
		l.checking = true
		go func() { l.result <- l.c.opts.Same(l.ctx) }()
	}
}

// confirmed goes online again. Messages in flight may have been lost in either direction: they are sent again now instead
// of after RetryAfter.
func (l *link) confirmed(same bool) {
	l.checking = false
	switch {
	case !same:
	case l.again:
		l.again = false
		l.check()
	case l.c.nc.IsConnected():
		l.c.online.Store(true)
		l.c.sweep(true)
	}
}

// wait waits for the check in progress.
func (l *link) wait() {
	if l.checking {
		<-l.result
	}
}
