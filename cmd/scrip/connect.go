package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/domain"
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
	// unlock adds the seal key to a log, if --data, SCRIP_CODE_KEY or --seal-key-file has it.
	unlock func(topology.Log) (topology.Log, error)
}

func (s *session) close() {
	s.Client.Close()
	s.nc.Close()
}

// guest returns who this is if the log-in is that of a user outside the account of the servers: by a key, or of the NATS
// configuration. "" = the servers' credentials, which reach the log itself.
func (s *session) guest(ctx context.Context) string {
	if role, id, ok := natsx.OfInbox(s.nc.Opts.InboxPrefix); ok {
		return "key " + id + " of role " + role
	}
	ctx, cancel := context.WithTimeout(ctx, userWait)
	defer cancel()
	reply, err := s.nc.RequestWithContext(ctx, natsauth.UserInfo, nil)
	var info struct {
		Data struct{ User, Account string }
	}
	if err != nil || json.Unmarshal(reply.Data, &info) != nil {
		return "" // an older nats-server: the servers' account is the only one
	}
	for _, account := range natsauth.Guests() {
		if info.Data.Account == account.String() {
			return "user " + info.Data.User + " of account " + info.Data.Account
		}
	}
	return ""
}

// userWait bounds the request for the user's own account.
const userWait = time.Second

// needsServers is part of the help of commands that use the log itself.
const needsServers = `It works on the log itself, which takes the credentials of the servers: those in scrip.json of a server's --data directory,
or those of the servers' account of your own NATS servers, with --nats or --nats-creds. The key of a user is not enough.`

// ofServers returns an error unless the log-in is that of the servers: a user with a key does not reach the log itself.
func (s *session) ofServers(ctx context.Context) error {
	if who := s.guest(ctx); who != "" {
		return fmt.Errorf("this command works on the log itself and needs the credentials of the servers, and the log-in is %s; "+
			"on the machine of a server omit --nats, as the server's user: they are in scrip.json of its --data directory; "+
			"for NATS servers of your own give the user of the servers' account (NATS_USER there), with --nats nats://USER:PASSWORD@HOST:PORT or --nats-creds FILE", who)
	}
	return nil
}

// log finds the log on the server.
func (s *session) log(ctx context.Context) (jetstream.JetStream, topology.Log, error) {
	js, err := s.jetStream(ctx)
	if err != nil {
		return nil, topology.Log{}, err
	}
	log, found, err := topology.Inspect(ctx, js)
	if err == nil && !found {
		err = errors.New("there is no log on this NATS server; create one with `scrip serve`, or name another server with --nats URL")
	}
	if err == nil {
		log, err = s.unlock(log)
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

// tablesURL is the URL of the read tables: that of --postgres, else that of scrip.json.
func tablesURL(given string, server datadir.Descriptor) (string, error) {
	if given == "" && server.PostgresURL == "" {
		return "", cli.Usagef("the URL of the read tables is unknown here; give --postgres URL")
	}
	return cmp.Or(given, server.PostgresURL), nil
}

// allCampaigns reads all pages.
func (s *session) allCampaigns(ctx context.Context) ([]domain.CampaignView, error) {
	var all []domain.CampaignView
	for after := ""; ; {
		page, next, err := s.Campaigns(ctx, after, 0)
		if all = append(all, page...); err != nil || next == "" {
			return all, err
		}
		after = next
	}
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
	// The command's own result reports a failure.
	nc, err := server.Connect(m.global.data, "scrip command line", append(given, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))...)
	if err != nil {
		return nil, err
	}
	return &session{Client: client.New(nc, client.Options{Timeout: m.global.timeout, By: cmp.Or(m.by, userAtHost())}), nc: nc, server: server, unlock: m.unlock}, nil
}

// unlock is session.unlock.
func (m *Main) unlock(log topology.Log) (topology.Log, error) {
	given, err := datadir.Variable(m.Env, datadir.KeyVariable)
	if err != nil {
		return log, err
	}
	sealKey, err := datadir.SealKey(m.Env, m.global.sealKey)
	if err != nil {
		return log, err
	}
	return datadir.Unlock(log, m.global.data, given, sealKey, m.logger(outputText, "warn"))
}

// unusedIDFlag is for commands that no lane decides, so that --id can be given to every command.
func unusedIDFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("id", "", "`ID` of the command, which every command takes; this one does not recognise its retry by it")
}

// idFlag is on every command that changes something.
func idFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("id", "", "`ID` of the command, at most 64 bytes; a retry with the same one takes effect once")
}

// commandRunE finishes a command that sends a domain command and prints its outcome.
func (m *Main) commandRunE(cmd *cobra.Command, build func(args []string) (wire.Command, error)) *cobra.Command {
	id := idFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := build(args)
		if err != nil {
			return err
		}
		if c.ID = *id; !cmd.Flags().Changed("id") {
			c.ID = uuid.Must(uuid.NewV7()).String()
		}
		s, err := m.connect()
		if err != nil {
			return err
		}
		defer s.close()
		ctx, cancel := context.WithTimeout(cmd.Context(), m.global.timeout)
		defer cancel()
		out, err := s.Do(ctx, c)
		if err != nil {
			return explain(err)
		}
		return m.answer(out)
	}
	return cmd
}

// queryRunE finishes a command that only reads.
func (m *Main) queryRunE(cmd *cobra.Command, query func(ctx context.Context, s *session, args []string) error) *cobra.Command {
	id := unusedIDFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := m.connect()
		if err != nil {
			return err
		}
		defer s.close()
		s.id = *id
		ctx, cancel := context.WithTimeout(cmd.Context(), m.global.timeout)
		defer cancel()
		err = query(ctx, s, args)
		var refused *client.RefusedError
		if errors.As(err, &refused) {
			return m.answer(refused.Outcome)
		}
		return err
	}
	return cmd
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
