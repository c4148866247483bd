package main

import (
	"errors"
	"fmt"
)

// Exit codes.
const (
	exitDone     = 0
	exitFailed   = 1 // it did not work, or it is not known whether it did
	exitUsage    = 2 // the command line makes no sense; nothing was done
	exitRefused  = 3 // the answer is no; nothing was done
	exitDiffered = 4 // a check found differences
)

// usageError is a command line that makes no sense.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// errRefused and errDiffered end a command whose answer has been printed already.
var (
	errRefused  = errors.New("refused")
	errDiffered = errors.New("differences found")
)

func exitCode(err error) int {
	var usage *usageError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, errRefused):
		return exitRefused
	case errors.Is(err, errDiffered):
		return exitDiffered
	}
	return exitFailed
}
