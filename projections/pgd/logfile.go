package pgd

import (
	"os"
	"strings"
	"sync"
	"syscall"
)

const (
	// logLimit is the size in bytes at which postgres.log becomes postgres.log.1: two files bound the disk used.
	logLimit = 8 * mebibyte
	// tailLines and tailBytes bound what is kept in memory for error messages.
	tailLines = 20
	tailBytes = 4096
)

// logFile writes the output of postmasters to a file of limited size. On a full disk it drops lines and never blocks:
// PostgreSQL's backends wait for the reader of their messages.
type logFile struct {
	path  string
	limit int64

	mu   sync.Mutex // guards the fields below; the last output of a dead postmaster may overlap with the next one's first
	file *os.File
	size int64
}

func (l *logFile) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil && l.size+int64(len(b)) > l.limit {
		l.closeLocked()
		_ = os.Rename(l.path, l.path+".1") // on failure the file grows
	}
	if l.file == nil {
		f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return len(b), nil
		}
		l.file, l.size = f, 0
		if info, err := f.Stat(); err == nil {
			l.size = info.Size()
		}
	}
	n, _ := l.file.Write(b)
	l.size += int64(n)
	return len(b), nil
}

func (l *logFile) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closeLocked()
}

func (l *logFile) closeLocked() {
	if l.file != nil {
		_ = l.file.Close() // nothing is buffered
		l.file = nil
	}
}

// tail keeps the last bytes written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if over := len(t.text) - tailBytes; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(b), nil
}

// String returns the last lines, without a first line that was cut.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(string(t.text))
	lines := strings.Split(text, "\n")
	if len(t.text) == tailBytes && len(lines) > 1 {
		lines = lines[1:]
	}
	if len(lines) > tailLines {
		lines = lines[len(lines)-tailLines:]
	}
	return strings.Join(lines, "\n")
}
