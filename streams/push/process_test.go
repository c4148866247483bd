package push_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/natsd"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// nodeEnv in the environment of this test binary makes it a server; it holds where that stores and listens.
const nodeEnv = "SCRIP_TEST_NODE"

// nodeMain makes this process a server if startProcess has started it: it serves as `scrip serve` does, without fsync, until
// standard input ends, and does not return.
func nodeMain() {
	dir, listen, is := strings.Cut(os.Getenv(nodeEnv), " ")
	if !is {
		return
	}
	s, err := natsd.Start(natsd.Options{StoreDir: dir, Listen: listen, Sync: natsd.SyncInterval})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	s.Shutdown()
	os.Exit(0)
}

// process is a server as `scrip serve` embeds it, in a process of its own on a fixed port. Other than streamtest.Server it can be
// killed while clients write: what it leaves is what the kernel has, at one moment.
type process struct {
	dir, listen string
	cmd         *exec.Cmd
	stdin       io.Closer // ends with the test's process, however that happens, and ends the server
}

// startProcess starts one, in a temporary directory, without fsync. It ends with the test.
func startProcess(t *testing.T) *process {
	t.Helper()
	p := &process{dir: t.TempDir(), listen: streamtest.Address(t)}
	p.start(t)
	t.Cleanup(p.end)
	return p
}

func (p *process) start(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	streamtest.Must(t, err)
	p.cmd = exec.Command(self)
	p.cmd.Env = append(os.Environ(), nodeEnv+"="+p.dir+" "+p.listen)
	p.cmd.Stdout, p.cmd.Stderr = t.Output(), t.Output()
	if p.stdin, err = p.cmd.StdinPipe(); err == nil {
		err = p.cmd.Start()
	}
	streamtest.Must(t, err)
}

// end ends the process with SIGKILL.
func (p *process) end() {
	_ = p.cmd.Process.Kill() // fails only if it has ended by itself
	_ = p.cmd.Wait()
	_ = p.stdin.Close()
}

// kill ends the process with SIGKILL and starts it again on its directory and port. It does not wait until it serves.
func (p *process) kill(t *testing.T) {
	t.Helper()
	p.end()
	p.start(t)
}

// Conn connects to the server until the test ends, reconnecting for ever. It returns when the server answers.
func (p *process) Conn(t testing.TB, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc := streamtest.Connect(t, "nats://"+p.listen, opts...)
	streamtest.Eventually(t, "the server is up", nc.IsConnected)
	return nc
}
