package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os/user"

	"github.com/nats-io/nats.go"
)

// Locate says where the server is that a client means: nats, as given by --nats, or else what the server on the data
// directory dir has written there. Its errors say what to do.
func Locate(nats, dir string) (Descriptor, error) {
	if nats != "" {
		return Descriptor{NATSURL: nats}, nil
	}
	server, err := Find(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return server, fmt.Errorf("no server runs on the data directory %s; start one with `scrip serve`, or name one with --data DIR or --nats URL", dir)
	case errors.Is(err, fs.ErrPermission):
		who := "this user"
		if u, err := user.Current(); err == nil {
			who = u.Username
		}
		return server, fmt.Errorf("%s may not read where the server is (%w); ask as the user who runs it, or name it with --nats URL", who, err)
	case err != nil:
		return server, err
	case !server.Alive():
		return server, fmt.Errorf("the server on %s is gone (process %d, it did not stop by itself); start it again with `scrip serve`", dir, server.PID)
	}
	return server, nil
}

// NotConnected says of a failed connection to a located server what to do.
func NotConnected(err error) error {
	hint := "is `scrip serve` running there?"
	if errors.Is(err, nats.ErrAuthorization) {
		hint = "give the credentials in the URL: nats://USER:PASSWORD@HOST:PORT"
	}
	return fmt.Errorf("connecting to the server: %w; %s", err, hint)
}
