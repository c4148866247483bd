package streamtest

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/natsd"
)

// nodeEnv holds a nodeConfig in the environment of a test binary that is to be a node.
const nodeEnv = "SCRIP_TEST_NODE"

// nodeConfig is the configuration of a node process.
type nodeConfig struct {
	File, Name, Dir string   // without a File: a server as scrip embeds it
	Client, Cluster string   // HOST:PORT to listen on
	Routes          []string // to the other nodes, through links
}

// runEmbedded serves as `scrip serve` does, without fsync, until standard input ends.
func runEmbedded(c nodeConfig) error {
	s, err := natsd.Start(natsd.Options{StoreDir: c.Dir, Listen: c.Client, Sync: natsd.SyncInterval})
	if err != nil {
		return err
	}
	defer s.Shutdown()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// child is this test binary as a process that serves NATS.
type child struct {
	cmd   *exec.Cmd // nil while it is down
	stdin io.Closer // ends with the test's process, however that happens, and ends the child
	gone  chan struct{}
}

// start starts the process and does not wait until it serves. Its output is appended to the file log.
func (c *child) start(t testing.TB, config nodeConfig, log string, env ...string) {
	t.Helper()
	if !nodesCalled {
		t.Fatal("streamtest.NodeMain is not called in this package's TestMain")
	}
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), nodeEnv+"="+string(raw)), env...)
	cmd.Stdout, cmd.Stderr = out, out
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() { _ = cmd.Wait(); close(gone) }()
	c.cmd, c.gone = cmd, gone
}

// kill ends the process as kill -9 does and returns when it is gone. One that is down stays down.
func (c *child) kill() {
	if c.cmd == nil {
		return
	}
	_ = c.cmd.Process.Kill() // fails only if it has ended by itself
	<-c.gone
	_ = c.stdin.Close()
	c.cmd = nil
}

// Process is a server as `scrip serve` embeds it, in a process of its own on a fixed port. Other than Server it can be
// killed while clients write: what it leaves is what the kernel has, at one moment.
type Process struct {
	child
	config nodeConfig
	log    string
}

// StartProcess starts one, in a temporary directory, without fsync. It ends with the test. TestMain of the package calls
// NodeMain.
func StartProcess(t testing.TB) *Process {
	t.Helper()
	p := &Process{log: filepath.Join(t.TempDir(), "nats.log"), config: nodeConfig{
		Dir: t.TempDir(), Client: "127.0.0.1:" + strconv.Itoa(freePorts(t, 1)[0]),
	}}
	t.Cleanup(func() {
		p.kill()
		if out, err := os.ReadFile(p.log); t.Failed() && err == nil {
			t.Logf("the server:\n%s", out[max(0, len(out)-3000):])
		}
	})
	p.start(t, p.config, p.log)
	return p
}

// Kill ends the process with SIGKILL and starts it again on its directory and port. It does not wait until it serves.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	p.kill()
	p.start(t, p.config, p.log)
}

// Conn connects to the server until the test ends, reconnecting for ever. It returns when the server answers.
func (p *Process) Conn(t testing.TB, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc := connect(t, "nats://"+p.config.Client, opts...)
	Eventually(t, "the server is up", nc.IsConnected)
	return nc
}

// JetStream is Conn with JetStream.
func (p *Process) JetStream(t testing.TB, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	return js(t, p.Conn(t, opts...))
}
