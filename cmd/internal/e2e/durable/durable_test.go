package durable

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func TestMain(m *testing.M) { os.Exit(e2e.Main(m, nil)) }

// traced is a scrip serve under strace.
type traced struct {
	t      *testing.T
	cmd    *exec.Cmd
	desc   e2e.Descriptor
	file   string
	output *bytes.Buffer
	ended  chan struct{}
}

// trace starts a server without tables, which do not matter here, under strace.
func trace(t *testing.T) *traced {
	t.Helper()
	tracer, err := exec.LookPath("strace")
	if err != nil {
		t.Fatalf("this test watches system calls and needs strace: install it (apt-get install strace, or make setup): %v", err)
	}
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	s := &traced{t: t, file: filepath.Join(dir, "trace"), output: &bytes.Buffer{}, ended: make(chan struct{})}
	s.cmd = exec.Command(tracer, "-f", "--seccomp-bpf", "-ttt", "-yy", "-s", "65536", "-e", "trace=write,pwrite64,writev,pwritev,sendto,sendmsg,fsync,fdatasync",
		"-o", s.file, e2e.Binary(), "serve", "--data", data, "--http-listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0",
		"--roles", "lanes,scheduler,api", "--lanes", "1", "--sync", "always")
	s.cmd.Stdout, s.cmd.Stderr = s.output, s.output
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.cmd.Wait(); close(s.ended) }()
	t.Cleanup(func() {
		if s.desc.PID != 0 {
			_ = syscall.Kill(s.desc.PID, syscall.SIGKILL)
		}
		_ = s.cmd.Process.Kill() // strace; without it, what it traces goes on
		<-s.ended
	})
	streamtest.Eventually(t, "the traced server is ready", func() bool {
		select {
		case <-s.ended:
			t.Fatalf("strace ended; where tracing is not permitted (a container without CAP_SYS_PTRACE, a seccomp profile), durability cannot be shown:\n%s", s.output)
		default:
		}
		raw, err := os.ReadFile(filepath.Join(data, "scrip.json"))
		return err == nil && json.Unmarshal(raw, &s.desc) == nil && s.desc.PID != 0
	})
	return s
}

// stop ends the server cleanly and returns what was traced.
func (s *traced) stop() []*call {
	s.t.Helper()
	if err := syscall.Kill(s.desc.PID, syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	<-s.ended
	s.desc.PID = 0
	raw, err := os.ReadFile(s.file)
	if err != nil {
		s.t.Fatal(err)
	}
	calls := parseTrace(string(raw))
	if len(calls) == 0 {
		s.t.Fatalf("strace saw no calls:\n%s", s.output)
	}
	return calls
}

// connect makes a connection.
func (s *traced) connect() *nats.Conn {
	s.t.Helper()
	nc, err := nats.Connect(s.desc.NATSURL, nats.Timeout(2*time.Minute))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(nc.Close)
	return nc
}

// claim sends one command and waits for the acknowledgement, which means "ordered and kept", and for the outcome. It needs a
// connection of its own: on a busy one the server may cut a line between two calls.
func claim(nc *nats.Conn, id string) error {
	outcome, err := nc.SubscribeSync("_INBOX.out." + id)
	if err != nil {
		return err
	}
	ack, err := nc.SubscribeSync("_INBOX.ack." + id)
	if err != nil {
		return err
	}
	line := fmt.Sprintf(`{"id":"%s","type":"claim","campaign":"c","customer_id":"of-%s"}`, id, id)
	err = nc.PublishMsg(&nats.Msg{
		Subject: topology.LaneCmd(0), Reply: "_INBOX.ack." + id, Data: []byte(line),
		Header: nats.Header{topology.HeaderReply: {"_INBOX.out." + id}},
	})
	if err != nil {
		return err
	}
	if msg, err := ack.NextMsg(2 * time.Minute); err != nil || !bytes.Contains(msg.Data, []byte(`"seq"`)) {
		return fmt.Errorf("the acknowledgement of %s: %v, %v", id, msg, err)
	}
	msg, err := outcome.NextMsg(2 * time.Minute)
	if err != nil || !bytes.Contains(msg.Data, []byte(`"status":"claimed"`)) {
		return fmt.Errorf("the outcome of %s: %v, %v", id, msg, err)
	}
	return nil
}

// claims makes lonely claims, then crowds of them that share steps and fsyncs, and returns their ids.
func (s *traced) claims() (ids []string) {
	s.t.Helper()
	if _, err := s.connect().Request("scrip.campaign.create", []byte(`{"campaign":"c","codes":10000}`), 2*time.Minute); err != nil {
		s.t.Fatal(err)
	}
	for i := range 20 {
		ids = append(ids, fmt.Sprintf("lonely-%d-", i))
		if err := claim(s.connect(), ids[len(ids)-1]); err != nil {
			s.t.Fatal(err)
		}
	}
	var each [40]*nats.Conn // made one by one: a traced server takes seconds for as many at once, and clients give up
	for i := range each {
		each[i] = s.connect()
	}
	for crowd := range 5 {
		var all sync.WaitGroup
		for i, nc := range each {
			id := fmt.Sprintf("crowd-%d-%d-", crowd, i)
			ids = append(ids, id)
			all.Go(func() {
				if err := claim(nc, id); err != nil {
					s.t.Error(err)
				}
			})
		}
		all.Wait()
	}
	return ids
}

// TestAnFsyncLiesBetweenEachWriteAndItsAnswer is the promise of --sync always, for the acknowledgement of a command and
// for its outcome.
func TestAnFsyncLiesBetweenEachWriteAndItsAnswer(t *testing.T) {
	s := trace(t)
	ids := s.claims()
	calls := s.stop()
	for _, id := range ids {
		// The line of the event; the command's line starts with the id, an event's does not.
		for _, err := range []error{
			onDisk(calls, topology.CmdStream(0), `{\"id\":\"`+id, "MSG _INBOX.ack."+id+" "),
			onDisk(calls, topology.EvtStream(0), `\"id\":\"`+id, "PUB _INBOX.out."+id+" "),
		} {
			if err != nil {
				t.Error(err)
			}
		}
	}
}
