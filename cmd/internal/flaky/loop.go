package main

import (
	"io"
	"os"
	"os/exec"
	"sync/atomic"
)

// loopVariable in the environment makes this program a busy loop.
const loopVariable = "SCRIP_FLAKY_LOOP"

// loop keeps a core busy until standard input ends, which it does with the process that started it.
func loop() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	var turns atomic.Uint64
	for {
		turns.Add(1)
	}
}

// startLoops starts n busy loops and returns what ends them.
func startLoops(n int) (stop func(), err error) {
	var ends []func()
	stop = func() {
		for _, end := range ends {
			end()
		}
	}
	program, err := os.Executable()
	if err != nil {
		return stop, err
	}
	for range n {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), loopVariable+"=1", "GOMAXPROCS=2") // one for the loop, one that sees the end
		in, err := cmd.StdinPipe()
		if err != nil {
			stop()
			return stop, err
		}
		if err := cmd.Start(); err != nil {
			stop()
			return stop, err
		}
		ends = append(ends, func() {
			_ = in.Close()
			_ = cmd.Wait()
		})
	}
	return stop, nil
}
