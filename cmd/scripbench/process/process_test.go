package process

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

func TestTheMachineIsDescribed(t *testing.T) {
	m := Machine(t.TempDir())
	if m.Cores < 1 || m.Go == "" || m.System == "" {
		t.Errorf("%+v", m)
	}
	if _, err := os.Stat("/proc/mounts"); err == nil && (m.Filesystem == unknown || m.Memory == unknown || Load() == unknown) {
		t.Errorf("%+v, load %s", m, Load())
	}
}

// TestUsageSeesChildren: PostgreSQL's work is done by children of its postmaster.
func TestUsageSeesChildren(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		if got := usageOf(os.Getpid()); got != (usage{}) {
			t.Errorf("without /proc: %+v", got)
		}
		return
	}
	dir := t.TempDir()
	p, err := Start(t.Context(), dir+"/log", time.Minute, atOnce, "sh", "-c", "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done; read x' & wait")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if u := usageOf(p.PID()); u.cpu >= 20*time.Millisecond && u.memory > 0 {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("%+v", u)
		}
		<-tick.C
	}
}

func atOnce(*Process) error { return nil }

func TestTheOutputOfAServerThatEndsIsReported(t *testing.T) {
	never := func(*Process) error { return ErrWaiting }
	_, err := Start(t.Context(), t.TempDir()+"/log", time.Minute, never, "sh", "-c", "echo no such luck; exit 3")
	if err == nil || !strings.Contains(err.Error(), "no such luck") || !strings.Contains(err.Error(), "exit status 3") {
		t.Error(err)
	}
	if p, err := Start(t.Context(), t.TempDir()+"/log", time.Minute, atOnce, "/nowhere/at-all"); err == nil || p != nil {
		t.Error("a program that is not there was started")
	}
	// A server that is never ready is returned, so that it can be stopped.
	p, err := Start(t.Context(), t.TempDir()+"/log", time.Millisecond, never, "sleep", "600")
	if p == nil || !errors.Is(err, ErrWaiting) {
		t.Fatal(err)
	}
	p.Kill()
}
