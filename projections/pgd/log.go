package pgd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

const (
	// logLimit is the size in bytes from which on postgres.log is moved to postgres.log.1: two files bound the disk used.
	logLimit = 8 * mebibyte
	// tailLines and tailBytes bound what error messages quote.
	tailLines = 20
	tailBytes = 4096
)

// rotate moves the last limit bytes of a log that has more to <path>.1. The postmaster and its children have the file open
// and append to it, so its content is copied and the file is cut. Lines written in between are lost, and so is the copy where
// the disk is full. A crash in between leaves both.
func rotate(path string, limit int64) {
	if sizeOf(path) > limit {
		_ = atomicfile.Write(path+".1", lastBytes(path, 0, limit), 0o600)
		_ = os.Truncate(path, 0)
	}
}

// sizeOf returns the size of a file, 0 if there is none. It does not follow links.
func sizeOf(path string) int64 {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	return info.Size()
}

// lastBytes returns at most limit bytes of the end of a file, without what comes before byte from. A file that is shorter
// than that was rotated since.
func lastBytes(path string, from, limit int64) []byte {
	size := sizeOf(path)
	if from > size {
		from = 0
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	from = max(from, size-limit)
	text, _ := io.ReadAll(io.NewSectionReader(f, from, size-from))
	return text
}

// lastLines returns the last lines of an output, without a first line that was cut.
func lastLines(text []byte) string {
	cut := len(text) >= tailBytes
	lines := strings.Split(strings.TrimSpace(string(text[max(0, len(text)-tailBytes):])), "\n")
	if cut && len(lines) > 1 {
		lines = lines[1:]
	}
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}

// Errors after which a start is retried.
var (
	errPortTaken = errors.New("the port is taken")
	errStillUsed = errors.New("processes of the postmaster before are still running")
)

// exitError returns the error for a postmaster that ended unexpectedly. logged is the length of the log at its start, cause
// may be nil.
func (h *home) exitError(logged int64, cause error) error {
	last := lastLines(lastBytes(h.place.log(), logged, tailBytes))
	ended := "ended"
	if cause != nil {
		ended = fmt.Sprintf("does not start (%v)", cause)
	}
	err := fmt.Errorf("PostgreSQL in %s %s%s; its log is %s, last lines:\n%s", h.place.data(), ended, spaceHint(last), h.place.log(), last)
	switch {
	case strings.Contains(last, "could not create any TCP/IP sockets"):
		return errors.Join(errPortTaken, err)
	case strings.Contains(last, "pre-existing shared memory block"), strings.Contains(last, `lock file "postmaster.pid" already exists`):
		return errors.Join(errStillUsed, err)
	}
	return err
}
