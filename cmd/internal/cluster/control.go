package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

const (
	controlFile = "control.sock"
	// longestCommand bounds a line that is read from the socket.
	longestCommand = 1 << 10
	// longestSocket is what every system accepts as the path of a socket.
	longestSocket = 100
)

// Control takes commands on the folder's socket until ctx ends: one line, such as "kill nats-2", for each connection.
func (c *Cluster) Control(ctx context.Context) error {
	path, err := socket(c.opts.Folder)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a runner that was killed
		return err
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("listening for commands: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })() // the deferred call ends the watch
	if err := os.Chmod(path, 0o600); err != nil {
		return errors.Join(err, ln.Close())
	}
	for {
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			line, err := bufio.NewReader(io.LimitReader(conn, longestCommand)).ReadString('\n')
			if err != nil {
				return // it ended before its command did
			}
			_, _ = io.WriteString(conn, c.answer(ctx, line))
		}()
	}
}

// answer does one command. Its first word is "ok" or "error".
func (c *Cluster) answer(ctx context.Context, line string) string {
	words := strings.Fields(line)
	switch {
	case len(words) == 1 && words[0] == "status":
		return "ok\n" + c.Status()
	case len(words) != 2:
		return fmt.Sprintf("error %q must be a command and the name of a service, such as: kill nats-2; or: status\n", strings.TrimSpace(line))
	}
	do, m := verbs[words[0]], c.member(words[1])
	switch {
	case do == nil:
		return fmt.Sprintf("error %q is no command; the commands are status, and start, stop, kill, pause, resume, cut, heal with the name of a service\n", words[0])
	case m == nil:
		var names []string
		for _, m := range c.members {
			names = append(names, m.Name)
		}
		return fmt.Sprintf("error %q is no service; the services are %s\n", words[1], strings.Join(names, ", "))
	}
	if err := do(ctx, c, m); err != nil {
		return "error " + err.Error() + "\n"
	}
	return fmt.Sprintf("ok\n%s: %s\n", m.Name, m.state())
}

// Send gives a command to the cluster that runs on a folder and returns its answer.
func Send(ctx context.Context, folder string, words ...string) (string, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return "", err
	}
	path, err := socket(folder)
	if err != nil {
		return "", err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return "", fmt.Errorf("no cluster runs on %s (%w); start one with: make cluster", folder, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := fmt.Fprintln(conn, strings.Join(words, " ")); err != nil {
		return "", err
	}
	raw, err := io.ReadAll(conn)
	if err != nil {
		return "", err
	}
	text := string(raw)
	if rest, failed := strings.CutPrefix(text, "error "); failed {
		return "", errors.New(strings.TrimSpace(rest))
	}
	return strings.TrimPrefix(text, "ok\n"), nil
}

func socket(folder string) (string, error) {
	path := filepath.Join(folder, controlFile)
	if len(path) > longestSocket {
		return "", fmt.Errorf("the path %s is too long for a socket; choose a shorter one with -data", path)
	}
	return path, nil
}

// Status is a table of all services: state, process, and where to reach it.
func (c *Cluster) Status() string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SERVICE\tSTATE\tPID\tREACH IT")
	for _, m := range c.members {
		state := m.state()
		m.mu.Lock()
		pid := m.pid()
		m.mu.Unlock()
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", m.Name, state, pid, c.where(m))
	}
	_ = w.Flush() // into memory
	return text.String()
}

// where describes how a service is reached, without passwords.
func (c *Cluster) where(m *member) string {
	switch m.Kind {
	case NATS:
		return fmt.Sprintf("nats://%s, http://%s", c.layout.own(m.Name, natsClients), c.layout.own(m.Name, natsMonitor))
	case Scrip:
		return fmt.Sprintf("http://%s, --data %s", c.layout.own(m.Name, scripHTTP), m.data())
	}
	return c.layout.own(m.Name, postgresPort)
}
