package cli

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/logline"
)

// logWait is how long the end of a process waits until its last lines are written.
const logWait = time.Second

// Context ends at the first SIGINT or SIGTERM, so that the command ends in order. The second one kills the process.
func Context() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	got := make(chan os.Signal, 1)
	signal.Notify(got, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-got
		signal.Stop(got) // before the context ends, since what ends by it may show people that a second one kills
		cancel()
	}()
	return ctx
}

// meaning is what a signal does to a process that serves.
type meaning int

const (
	stops   meaning = iota // in order; the second one ends the process at once
	hangsUp                // stops if the process belongs to a terminal, which was closed; else it is ignored
	ignored                // and logged
	silent                 // ignored
)

// signals of a process that serves. All others have the meaning of the Go runtime: SIGQUIT and SIGABRT write the stacks
// of all goroutines to standard error and end the process.
var signals = map[os.Signal]meaning{
	os.Interrupt: stops, syscall.SIGTERM: stops,
	// Programs send it to have a server read its files again: there is nothing to read, since certificates are
	// followed.
	syscall.SIGHUP: hangsUp,
	// Some programs reopen their log at it, which is for those who write to files. Go's default ends the process.
	syscall.SIGUSR1: ignored, syscall.SIGUSR2: ignored,
	// The reader of standard output or error is gone. Go's default ends the process; the write fails in any case.
	syscall.SIGPIPE: silent,
}

// serving is the standard error of a command that serves.
type serving struct {
	*logline.Log
	unhandle func()
}

// end writes the last lines.
func (s *serving) end() {
	s.Close(logWait)
	s.unhandle()
}

// Serve is for a command that runs until it is stopped: it makes the process's only writer of lines, and gives each
// signal its meaning. From now on the command's errors go to that log, too, and so do the lines of packages slog and
// log. Execute closes it. The context ends when the command is to stop.
func Serve(cmd *cobra.Command, opts logline.Options) (context.Context, *logline.Log) {
	log := logline.Open(cmd.ErrOrStderr(), opts)
	slog.SetDefault(log.Logger()) // for package log as well, which net/http writes to
	ctx, unhandle := handle(cmd.Context(), log.Logger(), ofTerminal())
	cmd.Root().SetErr(&serving{log, unhandle})
	return ctx, log
}

// ofTerminal reports whether the process belongs to a terminal, which hangs up when it is closed.
func ofTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err == nil {
		_ = tty.Close()
	}
	return err == nil
}

// handle gives signals their meanings, except those of Context, which has them already. The context ends when a
// terminal hangs up.
func handle(ctx context.Context, log *slog.Logger, terminal bool) (context.Context, func()) {
	ctx, stop := context.WithCancel(ctx)
	got := make(chan os.Signal, 8)
	for s, does := range signals {
		// nohup has SIGHUP ignored from the start, and it stays so.
		if does != stops && !(does == hangsUp && signal.Ignored(s)) {
			signal.Notify(got, s) // not signal.Ignore, which programs that this one starts would inherit
		}
	}
	go func() {
		for s := range got {
			switch does := signals[s]; {
			case does == hangsUp && terminal:
				signal.Reset(s) // the second one ends the process
				stop()
			case does != silent:
				log.Info("ignoring a signal; certificates are followed and the log has no file, so nothing needs it", "signal", s.String())
			}
		}
	}()
	return ctx, func() {
		signal.Stop(got)
		close(got) // Stop has waited for signals on their way
		stop()
	}
}
