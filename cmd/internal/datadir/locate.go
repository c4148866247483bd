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
		return server, fmt.Errorf("%s may not read where the server is and which credentials it asks for (%w); ask as the user who runs it, or name it with --nats nats://USER:PASSWORD@HOST:PORT", who, err)
	case err != nil:
		return server, err
	case !server.Alive():
		return server, fmt.Errorf("the server on %s is gone (process %d, it did not stop by itself); start it again with `scrip serve`", dir, server.PID)
	}
	return server, nil
}

// NotConnected says of a failed connection to a located server what to do. dir is the data directory of the command.
func NotConnected(err error, dir string) error {
	hint := "is `scrip serve` running there?"
	if errors.Is(err, nats.ErrAuthorization) {
		hint = "its credentials are kept in the file credentials in its data directory, readable by the user who runs it"
		if path := CredentialsPath(dir); path != "" {
			hint = "the credentials of the server on this data directory are in " + path + ", readable by the user who runs it"
		}
		hint += "; as that user leave out --nats, or give them in the URL: nats://USER:PASSWORD@HOST:PORT"
	}
	return fmt.Errorf("connecting to the server: %w; %s", err, hint)
}
