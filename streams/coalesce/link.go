package coalesce

import "context"

// link follows the connection. It belongs to the goroutine of Run.
//
// It looks at the connection itself and not at the status events, which are dropped when Run is late to read them.
type link struct {
	c          *Coalescer
	ctx        context.Context
	up         bool
	reconnects uint64
	asking     bool // whether the log is the same
	again      bool // the connection changed meanwhile
	told       chan bool
}

// look notices that the connection went or came back.
func (l *link) look() {
	up, reconnects := l.c.nc.IsConnected(), l.c.nc.Stats().Reconnects
	if !up {
		l.c.online.Store(false)
	} else if !l.up || reconnects != l.reconnects {
		l.c.online.Store(false)
		l.ask()
	}
	l.up, l.reconnects = up, reconnects
}

// ask finds out whether the log is the same. A line that another log accepted could be refused by this one.
func (l *link) ask() {
	switch {
	case l.asking:
		l.again = true
	case l.c.opts.Same == nil:
		l.confirmed(true)
	default:
		l.asking = true
		go func() { l.told <- l.c.opts.Same(l.ctx) }()
	}
}

// confirmed goes online again. Whatever was under way may be lost in either direction: it is sent again now rather than
// in AskAgain.
func (l *link) confirmed(same bool) {
	l.asking = false
	switch {
	case !same:
	case l.again:
		l.again = false
		l.ask()
	case l.c.nc.IsConnected():
		l.c.online.Store(true)
		l.c.sweep(true)
	}
}

// wait ends with the question under way.
func (l *link) wait() {
	if l.asking {
		<-l.told
	}
}
