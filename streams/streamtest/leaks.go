package streamtest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// VerifyTestMain runs a package's tests and ends the process. It fails if goroutines are left.
func VerifyTestMain(m *testing.M, opts ...goleak.Option) { os.Exit(Leaks(m.Run(), opts...)) }

// Leaks returns the exit code of tests that ended with code: not 0 if goroutines are left. It waits for those that are
// about to end: goleak alone gives up after half a second, which is too soon on a busy machine.
func Leaks(code int, opts ...goleak.Option) int {
	if code != 0 {
		return code
	}
	err := goleak.Find(opts...)
	for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); {
		err = goleak.Find(opts...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "goroutines are left:", err)
		return 1
	}
	return 0
}
