package natsd_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// logged lets a server log into a buffer.
func logged(into *streamtest.Buffer) streamtest.Option {
	return func(o *natsd.Options) { o.Logger = slog.New(slog.NewTextHandler(into, nil)) }
}

// dialRaw opens a socket to the server, reads its INFO and writes a text.
func dialRaw(t *testing.T, s *streamtest.Server, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.ClientURL(), "nats://"))
	streamtest.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Read(make([]byte, 8192)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

// sendRaw is dialRaw, and returns when the server has closed the connection.
func sendRaw(t *testing.T, s *streamtest.Server, text string) {
	t.Helper()
	c := dialRaw(t, s, text)
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	_, _ = io.Copy(io.Discard, c)
	_ = c.Close()
}

// TestAClientCannotBreakTheStore: nats-server puts what clients send and what they call themselves into the formats of its lines.
// None of it is a store that failed to write.
func TestAClientCannotBreakTheStore(t *testing.T) {
	const line = "Filestore [SCRIP_EVT_0] Critical write error: %v"
	texts := []string{
		"critical write error\r\n",
		line + "\r\n",
		fmt.Sprintf("CONNECT {\"name\":%q}\r\nbad\r\n", line),
		fmt.Sprintf("CONNECT {\"name\":\"a\",\"lang\":%q,\"version\":%q}\r\nPUB x 99999999\r\n", line, line),
		fmt.Sprintf("CONNECT {\"user\":%q,\"pass\":\"x\"}\r\nbad\r\n", line),
		"CONNECT {}\r\nSUB critical.write.error:.%v. 1\r\nbad\r\n",
	}
	for _, start := range []func(...streamtest.Option) *streamtest.Server{
		func(o ...streamtest.Option) *streamtest.Server { return streamtest.Start(t, o...) },
		func(o ...streamtest.Option) *streamtest.Server { return withLogIns(t, o...) },
	} {
		var log streamtest.Buffer
		s := start(logged(&log))
		for _, text := range texts {
			sendRaw(t, s, text)
		}
		s.Shutdown() // so that the lines are written
		if s.Broken() || !strings.Contains(log.String(), "nats: ") {
			t.Errorf("the store is taken for broken, or nothing was logged: %s", log.String())
		}
	}
}

// TestEveryLineOfABrokenStoreIsKnown reads the source of nats-server: a line of another form would not be taken for what it is.
func TestEveryLineOfABrokenStoreIsKnown(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/nats-io/nats-server/v2").Output()
	streamtest.Must(t, err)
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "server", "*.go"))
	streamtest.Must(t, err)
	before := map[string]string{"filestore.go": "Filestore [SCRIP_EVT_0] ", "raft.go": "RAFT [S1Nunr6R - _meta_] "}
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		streamtest.Must(t, err)
		for _, m := range regexp.MustCompile(`rror\w*\("([^"]*ritical write error[^"]*)"`).FindAllStringSubmatch(string(text), -1) {
			found++
			if format := before[filepath.Base(file)] + m[1]; !natsd.OfBrokenStore(format) {
				t.Errorf("%s: %q is not known", file, format)
			}
		}
	}
	if found != 5 {
		t.Errorf("%d lines, expected 5", found)
	}
}

// TestClientsCannotFillTheLog: each line is cut, a second has one line of a kind with the number of those left out, and a key
// that is sent as a name is in none.
func TestClientsCannotFillTheLog(t *testing.T) {
	const key = "sk_producer_01h8z3qk01h8z3qk01h8z3qk01h8z3qk01h8z3qk01h8z3qk"
	var log streamtest.Buffer
	s := withLogIns(t, logged(&log))
	start := time.Now()
	const tries = 100
	for i := range tries {
		sendRaw(t, s, fmt.Sprintf("CONNECT {\"user\":%q,\"name\":%q}\r\n", key, key))
		sendRaw(t, s, fmt.Sprintf("CONNECT {\"user\":%q,\"name\":\"%s\"}\r\n", streamtest.ServersUser, strings.Repeat("n", 3000)))
		sendRaw(t, s, fmt.Sprintf("%s %d\r\n", strings.Repeat("x", i), i))
	}
	time.Sleep(time.Second) // the next line of a kind is logged
	sendRaw(t, s, "bad\r\n")
	s.Shutdown()
	text := log.String()
	if strings.Contains(text, "01h8z3qk") || !strings.Contains(text, "sk_…") {
		t.Error("a key is in the log, or was not sent")
	}
	seconds := int(time.Since(start).Seconds()) + 1
	if lines := strings.Count(text, "\n"); lines > 4*seconds || lines == 0 {
		t.Errorf("%d lines in %d s for %d clients", lines, seconds, 3*tries)
	}
	for line := range strings.Lines(text) {
		if len(line) > 700 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
	if !strings.Contains(text, " like it were left out before)") {
		t.Errorf("it does not show how many lines were left out: %s", text)
	}
}
