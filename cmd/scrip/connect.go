package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// session is one command's connection to the server.
type session struct {
	*client.Client
	nc *nats.Conn
	// server is the content of scrip.json; the zero value if --nats was given instead.
	server datadir.Descriptor
	id     string // of the command, generated or given by --id
	// open ends when NATS refuses a request's subject to the user, with the reason as its cause: no answer will come.
	open context.Context
}

func (s *session) close() {
	s.Client.Close()
	s.nc.Close()
}

// bounded is the context of a request. It ends with the timeout, and with s.open.
func (s *session) bounded(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	stop := context.AfterFunc(s.open, cancel)
	return ctx, func() { stop(); cancel() }
}

// orDenied is why NATS refused a subject to the user, if it did and err is the end of the wait for the answer; else err.
func (s *session) orDenied(err error) error {
	if denied := context.Cause(s.open); err != nil && denied != nil {
		return denied
	}
	return err
}

// denial is the error of a user who may not publish requests to a subject; nil for other errors of a connection.
func denial(nc *nats.Conn, err error) error {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	_, rest, ok := strings.Cut(err.Error(), `Publish to "scrip.`)
	subject, _, _ := strings.Cut(rest, `"`)
	if !ok {
		return nil
	}
	who := "this user of NATS"
	if role, id, keyed := natsx.OfInbox(nc.Opts.InboxPrefix); keyed {
		who = "key " + id + " of role " + role
	}
	return fmt.Errorf("scrip.%s: not allowed, nothing was done: %s may not do this; it takes a key of another role, or the credentials of a server", subject, who)
}

// userWait bounds the request for the user's own account.
const userWait = time.Second

// needsServers is part of the help of commands that use the log itself.
const needsServers = `It works on the log itself, which takes the credentials of the servers: those in scrip.json of a server's --data directory,
or those of the servers' account of your own NATS servers, with --nats or --nats-creds. The key of a user is not enough.`

// ofServers returns an error unless the log-in is that of the servers: a user outside their account, by a key or of the NATS
// configuration, does not reach the log itself.
func (s *session) ofServers(ctx context.Context) error {
	role, id, keyed := natsx.OfInbox(s.nc.Opts.InboxPrefix)
	who := "key " + id + " of role " + role
	if !keyed {
		ctx, cancel := context.WithTimeout(ctx, userWait)
		defer cancel()
		var info struct {
			Data struct{ User, Account string }
		}
		reply, err := s.nc.RequestWithContext(ctx, natsauth.UserInfo, nil)
		if err != nil || json.Unmarshal(reply.Data, &info) != nil || !slices.Contains(natsauth.Guests(), info.Data.Account) {
			return nil
		}
		who = "user " + info.Data.User + " of account " + info.Data.Account
	}
	return fmt.Errorf("this command works on the log itself and needs the credentials of the servers, and the log-in is %s; "+
		"on the machine of a server omit --nats, as the server's user: they are in scrip.json of its --data directory; "+
		"for NATS servers of your own give the user of the servers' account (NATS_USER there), with --nats nats://USER:PASSWORD@HOST:PORT or --nats-creds FILE", who)
}

// log finds the log on the server. It has the seal key if --data, SCRIP_CODE_KEY or --seal-key-file has it.
func (m *Main) log(ctx context.Context, s *session) (jetstream.JetStream, topology.Log, error) {
	js, err := s.jetStream(ctx)
	if err != nil {
		return nil, topology.Log{}, err
	}
	log, found, err := topology.Inspect(ctx, js)
	if err == nil && !found {
		err = errors.New("there is no log on this NATS server; create one with `scrip serve`, or name another server with --nats URL")
	}
	if err == nil {
		log, err = m.unlock(log)
	}
	return js, log, err
}

// jetStream is JetStream with the log.
func (s *session) jetStream(ctx context.Context) (jetstream.JetStream, error) {
	if err := s.ofServers(ctx); err != nil {
		return nil, err
	}
	return jetstream.New(s.nc)
}

// find returns the server's address: --nats, else scrip.json.
func (m *Main) find() (datadir.Descriptor, error) {
	return datadir.Locate(m.global.nats, m.global.data)
}

// connect finds the server and connects to it.
func (m *Main) connect() (*session, error) {
	server, err := m.find()
	if err != nil {
		return nil, err
	}
	given, err := m.natsFlags.Options()
	if err != nil {
		return nil, err
	}
	open, end := context.WithCancelCause(context.Background())
	// The command's own result reports any other failure.
	nc, err := server.Connect(m.global.data, "scrip command line", append(given, nats.ErrorHandler(func(nc *nats.Conn, _ *nats.Subscription, err error) {
		if denied := denial(nc, err); denied != nil {
			end(denied)
		}
	}))...)
	if err != nil {
		end(nil)
		return nil, err
	}
	return &session{open: open, Client: client.New(nc, client.Options{Timeout: m.global.timeout, By: cmp.Or(m.by, userAtHost())}), nc: nc, server: server}, nil
}

// unlock adds the seal key to a log.
func (m *Main) unlock(log topology.Log) (topology.Log, error) {
	given, err := datadir.Variable(m.Env, datadir.KeyVariable)
	if err != nil {
		return log, err
	}
	sealKey, err := datadir.SealKey(m.Env, m.global.sealKey)
	if err != nil {
		return log, err
	}
	return datadir.Unlock(log, m.global.data, given, sealKey, m.warnings())
}

// query finishes a command that no lane decides.
func (m *Main) query(cmd *cobra.Command, query func(ctx context.Context, s *session, args []string) error) *cobra.Command {
	id := idFlag(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := m.connect()
		if err != nil {
			return err
		}
		defer s.close()
		s.id = *id
		ctx, cancel := s.bounded(cmd.Context(), m.global.timeout)
		defer cancel()
		return m.refusedOr(s.orDenied(query(ctx, s, args)))
	}
	return cmd
}

// refusedOr prints the refusal of a server, if err is one.
func (m *Main) refusedOr(err error) error {
	var refused *client.RefusedError
	if errors.As(err, &refused) {
		return m.answer(refused.Outcome)
	}
	return err
}

// answer prints an outcome and turns it into the exit code.
func (m *Main) answer(o wire.Outcome) error {
	if err := m.printOutcome(o); err != nil {
		return err
	}
	if o.Refused() {
		return cli.ErrRefused
	}
	return nil
}

// explain adds to an error of the client whether the command took effect, and how to retry it.
func explain(err error) error {
	var unknown *client.UnknownError
	var unsent *client.NotSentError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("unknown outcome, the command may have taken effect: %w; retry with --id %s", err, unknown.ID)
	case errors.As(err, &unsent):
		return fmt.Errorf("nothing was done: %w", err)
	}
	return err
}

// userAtHost is the user that runs the program and the host's name, each "unknown" where the system has none.
func userAtHost() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil && h != "" {
		host = h
	}
	by := plain(name+"@"+host, 100)
	if !wire.Printable(by) {
		return "unknown"
	}
	return by
}
