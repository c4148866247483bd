// Command scrip is the server and its command line in one.
//
//	scrip serve ──> cmd/internal/server          everything a server is made of
//	scrip demo  ──> cmd/internal/demo            a flash sale, and its proof
//	scrip …     ──> streams/client ──> server    one command, one answer, one exit code
//
// Owner: nobody. A command that is killed before its answer came may or may not have had its effect; asked again with
// the same --id it has it once.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	m := &Main{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv, Now: time.Now,
		TerminalIn: isTerminal(os.Stdin), TerminalErr: isTerminal(os.Stderr),
	}
	// The first signal asks politely. The second ends at once: NotifyContext then no longer stands in its way.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(m.Run(ctx, os.Args[1:]))
}

// Main is the program with what it touches of its surroundings, so that tests run it in process.
type Main struct {
	In       io.Reader
	Out, Err io.Writer
	// Env looks up an environment variable.
	Env func(string) (string, bool)
	Now func() time.Time
	// TerminalIn and TerminalErr say whether a person sits there. Progress is shown to persons only.
	TerminalIn, TerminalErr bool

	global globalFlags
}

// isTerminal is good enough to tell a person from a pipe or file: every terminal is a character device.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && f.Name() != os.DevNull
}
