package natsd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

const (
	// maxLine is the length of a line of nats-server's in bytes: clients choose their names, and errors quote what they sent.
	maxLine = 512
	// lineEvery is how often a line of one kind is logged. There are maxKinds; further ones are one kind together.
	lineEvery = time.Second
	maxKinds  = 64
	ownKind   = "own "
)

var (
	// storeFailed matches the formats of the lines about a store that cannot write, from the first character to the last.
	// nats-server puts names and texts of clients into formats, too, but after the address of the client.
	storeFailed = regexp.MustCompile(`^(Filestore \[[^\]]*\]|RAFT \[[^\]]*\]|JetStream cluster meta group|JetStream (stream '%s > %s'|consumer '%s > %s > %s')) [Cc]ritical write error: %v$`)
	// ofKind matches a format up to its first words, the kind: the address of a client, its number, and what it calls itself.
	ofKind = regexp.MustCompile(`^(?:\S+ - \w+:\d+ - (?:"(?:[^"\\]|\\.)*" - )*)?([A-Za-z ]*)`)
	// ofOwn matches a format of a client in the servers' account. A client chooses what it calls itself, which is quoted before.
	ofOwn = regexp.MustCompile(`^\S+ - \w+:\d+ - (?:"(?:[^"\\]|\\.)*" - )?"\$G/[^"]*" - `)
	// keyText matches keys of users, also ones with an error in them. Clients send them as names by mistake.
	keyText = regexp.MustCompile(`sk_\w+`)
)

// logger passes nats-server's lines to slog: warnings and errors cut, without keys, and one of a kind a second; notices (banner,
// "Server is ready") as debug. Debug and trace lines of nats-server are off.
type logger struct {
	to *slog.Logger

	// broken is set when a stream's store could not write. From then on that store rejects everything, also when there is
	// space again, and answers no request; nats-server reports it in no other way (filestore.go, setWriteErr).
	broken atomic.Bool

	// unsynced is the first failed fsync of a store.
	unsynced atomic.Pointer[os.PathError]

	mu    sync.Mutex       // guards the fields below
	fatal error            // the first fatal line; nats-server expects the process to die on it, boot returns it instead
	kinds map[string]*kind // of lines
}

// kind is when a line of a kind was logged, and how many were left out since.
type kind struct {
	at   time.Time
	left int
}

func (l *logger) Noticef(format string, v ...any) { l.to.Debug(line(format, v)) }

// plainPassword is the format of a warning about passwords in a configuration file. scrip's come from memory, and comparing
// a hash instead would cost each new connection tens of milliseconds of CPU.
const plainPassword = "Plaintext passwords detected"

func (l *logger) Warnf(format string, v ...any) {
	if !strings.HasPrefix(format, plainPassword) {
		l.log(slog.LevelWarn, format, v)
	}
}

func (l *logger) Errorf(format string, v ...any) {
	if len(v) > 0 && storeFailed.MatchString(format) {
		if err, is := v[len(v)-1].(error); is {
			if lostBySync(err) {
				var at *os.PathError
				errors.As(err, &at)
				l.unsynced.CompareAndSwap(nil, at)
			}
			l.broken.Store(true)
		}
	}
	l.log(slog.LevelError, format, v)
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

// failed returns the first fatal line since the last call.
func (l *logger) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.fatal
	l.fatal = nil
	return err
}

// log logs a line, unless one of its kind was logged within lineEvery: the next one has the number of those left out.
func (l *logger) log(level slog.Level, format string, v []any) {
	name, now := ofKind.FindStringSubmatch(format)[1], time.Now()
	if ofOwn.MatchString(format) {
		name = ownKind + name // what users do with keys hides none of these
	}
	l.mu.Lock()
	if l.kinds[name] == nil && len(l.kinds) >= maxKinds {
		name = ""
	}
	if l.kinds[name] == nil {
		l.kinds[name] = &kind{}
	}
	k := l.kinds[name]
	if now.Sub(k.at) < lineEvery {
		k.left++
		l.mu.Unlock()
		return
	}
	left := k.left
	k.at, k.left = now, 0
	l.mu.Unlock()
	text := line(format, v)
	if left > 0 {
		text = fmt.Sprintf("%s (%d like it were left out before)", text, left)
	}
	l.to.Log(context.Background(), level, text)
}

func line(format string, v []any) string {
	return wire.Shorten(keyText.ReplaceAllString("nats: "+fmt.Sprintf(format, v...), "sk_…"), maxLine)
}
