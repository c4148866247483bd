package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Command is what to run. Program and Log are required.
type Command struct {
	Program   string
	Args, Env []string // Env replaces the environment of this process; NAME=value, the last one of a name counts
	Log       string   // file to which output is appended
	Output    *os.File // gets the output instead of Log; Start closes it
	// Apart puts the process into a session of its own, without a terminal: neither its Ctrl-C nor its end reach the process.
	Apart bool
}

// Process is one that was started.
type Process struct {
	cmd  *exec.Cmd
	log  *os.File
	gone chan struct{}
}

// Start starts a process.
func Start(c Command) (*Process, error) {
	log := c.Output
	if log == nil {
		var err error
		if log, err = os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600); err != nil {
			return nil, err
		}
	}
	p := &Process{log: log, gone: make(chan struct{})}
	p.cmd = exec.Command(c.Program, c.Args...)
	p.cmd.Env = c.Env
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: c.Apart}
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	if c.Output != nil {
		_ = log.Close() // the pipe ends with the process
	}
	go func() {
		_ = p.cmd.Wait() // Wait returns the exit code
		_ = log.Close()
		close(p.gone)
	}()
	return p, nil
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Gone is closed when the process has ended.
func (p *Process) Gone() <-chan struct{} { return p.gone }

// Alive is true until the process has ended.
func (p *Process) Alive() bool {
	select {
	case <-p.gone:
		return false
	default:
		return true
	}
}

// Kill is kill -9, also of a process that is stopped; it waits until the process has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	_ = p.cmd.Process.Kill()
	<-p.gone
}

// Signal sends a signal.
func (p *Process) Signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// Wait waits for the end and returns the exit code, -1 after a signal.
func (p *Process) Wait() int {
	<-p.gone
	return p.cmd.ProcessState.ExitCode()
}

// Ended waits for the end and describes it, such as "exit status 1" or "signal: killed".
func (p *Process) Ended() string {
	<-p.gone
	return p.cmd.ProcessState.String()
}

// Stop sends SIGTERM, waits for the end and returns the exit code.
func (p *Process) Stop() (int, error) {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return -1, err
	}
	return p.Wait(), nil
}

// StopWithin is Stop, but kills the process after the limit.
func (p *Process) StopWithin(limit time.Duration) error {
	if !p.Alive() {
		return nil
	}
	_ = p.Signal(syscall.SIGCONT) // a stopped process would not get the next one
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-p.gone:
		return nil
	case <-late.C:
		p.Kill()
		return fmt.Errorf("did not end within %s of SIGTERM and was killed", limit)
	}
}

// Logs waits until the output has one of the texts. It is an error if the process ends before, or it takes longer than the
// limit. The output is a file, which is looked at: what the process starts may write to it, and live longer than this one.
func (p *Process) Logs(limit time.Duration, texts ...string) error {
	late := time.After(limit)
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for gone := false; ; {
		out := p.Output()
		if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(out, text) }) {
			return nil
		}
		if gone {
			return fmt.Errorf("the process ended (%s), and its output has none of %q", p.Ended(), texts)
		}
		select {
		case <-p.gone:
			gone = true
		case <-late:
			return fmt.Errorf("after %s the output has none of %q", limit, texts)
		case <-tick.C:
		}
	}
}

// Output is the output of the process so far, after that of earlier processes with the same file.
func (p *Process) Output() string {
	out, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// Family is a process and its descendants at this moment, parents first. It runs ps, which Linux and macOS have.
func Family(pid int) ([]int, error) {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	children := map[int][]int{}
	for line := range strings.Lines(string(out)) {
		var child, parent int
		if _, err := fmt.Sscan(line, &child, &parent); err == nil {
			children[parent] = append(children[parent], child)
		}
	}
	family := []int{pid}
	for i := 0; i < len(family); i++ {
		family = append(family, children[family[i]]...)
	}
	return family, nil
}

// SignalFamily sends a signal to a process and its descendants. A descendant that has ended meanwhile is no error.
func SignalFamily(pid int, sig syscall.Signal) error {
	family, err := Family(pid)
	if err != nil {
		return err
	}
	for i, member := range family {
		if err := syscall.Kill(member, sig); err != nil && i == 0 {
			return fmt.Errorf("signal %s to process %d: %w", sig, pid, err)
		}
	}
	return nil
}
