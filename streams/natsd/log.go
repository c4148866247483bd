package natsd

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// logger passes nats-server's lines to slog: warnings and errors unchanged, notices (banner, "Server is ready") as
// debug. Debug and trace lines of nats-server are off.
type logger struct {
	to *slog.Logger

	// broken is set when a stream's store could not write. From then on that store rejects everything, also when there is
	// space again, and answers no request; nats-server reports it in no other way (filestore.go, setWriteErr).
	broken atomic.Bool

	// unsynced is the first failed fsync of a store.
	unsynced atomic.Pointer[os.PathError]

	mu    sync.Mutex
	fatal error // the first fatal line; nats-server expects the process to die on it, Start returns it instead
}

func (l *logger) Noticef(format string, v ...any) { l.to.Debug("nats: " + fmt.Sprintf(format, v...)) }

// plainPassword is the format of a warning about passwords in a configuration file. scrip's come from memory, and comparing
// a hash instead would cost each new connection tens of milliseconds of CPU.
const plainPassword = "Plaintext passwords detected"

func (l *logger) Warnf(format string, v ...any) {
	if !strings.HasPrefix(format, plainPassword) {
		l.to.Warn("nats: " + fmt.Sprintf(format, v...))
	}
}

// writeError is part of the format of the two lines about a store that could not write.
const writeError = "ritical write error"

func (l *logger) Errorf(format string, v ...any) {
	if strings.Contains(format, writeError) {
		for _, arg := range v {
			if err, is := arg.(error); is && lostBySync(err) {
				var at *os.PathError
				errors.As(err, &at)
				l.unsynced.CompareAndSwap(nil, at)
			}
		}
		l.broken.Store(true)
	}
	l.to.Error("nats: " + fmt.Sprintf(format, v...))
}

// lostBySync reports whether an error is a failed fsync after which the kernel may have dropped the data. If only disk space
// is missing, JetStream is restarted once there is some.
func lostBySync(err error) bool {
	var at *os.PathError
	return errors.As(err, &at) && at.Op == "sync" && !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT)
}

func (l *logger) Debugf(string, ...any) {}
func (l *logger) Tracef(string, ...any) {}

func (l *logger) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fatal == nil {
		l.fatal = fmt.Errorf(format, v...)
	}
}

func (l *logger) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}
