package cli

import (
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// TestTheEndOfATerminal: it stops a command that serves. Other meanings of signals are shown by a test of the program.
func TestTheEndOfATerminal(t *testing.T) {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP) // this process lives
	defer signal.Stop(caught)
	ctx, end := handle(t.Context(), slog.New(slog.DiscardHandler), true)
	defer end()
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
}
