package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// strict are the logs that Main reads at its end, by name. They are kept open, since tests remove theirs before.
var strict struct {
	mu   sync.Mutex
	logs map[string]*os.File
}

// Strict makes Main fail if the log of a server has a line about something that NATS refused to the servers' own user. The file
// may not exist yet. Start calls it.
func Strict(log string) error {
	strict.mu.Lock()
	defer strict.mu.Unlock()
	if strict.logs[log] != nil {
		return nil
	}
	f, err := os.OpenFile(log, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	if strict.logs == nil {
		strict.logs = map[string]*os.File{}
	}
	strict.logs[log] = f
	return nil
}

// refused prints the lines that Strict is about, and reports whether there are any.
func refused(to io.Writer) (found bool) {
	strict.mu.Lock()
	defer strict.mu.Unlock()
	for name, f := range strict.logs {
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if streamtest.Violation(lines.Text()) {
				found = true
				fmt.Fprintf(to, "NATS refused something to the servers' own user: %s: %s\n", name, lines.Text())
			}
		}
		if err := lines.Err(); err != nil {
			found = true
			fmt.Fprintf(to, "reading the log %s: %v\n", name, err)
		}
	}
	return found
}
