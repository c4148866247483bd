package pgd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// serves reports whether process pid is alive and is the postmaster of the cluster in dir. An id read from a file may
// belong to any program by now; this check keeps another program from being stopped.
func serves(ctx context.Context, pid int, dir string) bool {
	if pid <= 0 {
		return false
	}
	if _, err := os.Stat("/proc/self/cmdline"); err == nil {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // empty for a zombie
		if err != nil {
			return false
		}
		return isPostmaster(strings.Split(string(bytes.TrimRight(raw, "\x00")), "\x00"), dir)
	}
	return servesByPS(ctx, pid, dir)
}

// isPostmaster checks a command line. Children of the postmaster have a title ("postgres: checkpointer") and no -D.
func isPostmaster(args []string, dir string) bool {
	if len(args) == 0 || filepath.Base(args[0]) != "postgres" {
		return false
	}
	for i, arg := range args[1:] {
		given := ""
		switch {
		case arg == "-D" && i+2 < len(args):
			given = args[i+2]
		case strings.HasPrefix(arg, "-D"):
			given = strings.TrimPrefix(arg, "-D")
		}
		if given != "" && sameDir(given, dir) {
			return true
		}
	}
	return false
}

func sameDir(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	ai, aerr := os.Stat(a)
	bi, berr := os.Stat(b)
	return aerr == nil && berr == nil && os.SameFile(ai, bi)
}

// servesByPS is for systems without /proc. ps joins the arguments with spaces, so the directory is searched as text.
func servesByPS(ctx context.Context, pid int, dir string) bool {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	column := func(name string) string {
		out, err := exec.CommandContext(ctx, "ps", "-ww", "-o", name+"=", "-p", strconv.Itoa(pid)).Output()
		if err != nil { // ps exits with 1 if there is no such process
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	return filepath.Base(column("comm")) == "postgres" && strings.Contains(column("command")+" ", " -D "+dir+" ")
}
