package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/streams/access/callout"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/seal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// findKey is the code key of SCRIP_CODE_KEY, or of the data directory.
func (m *Main) findKey() (key datadir.Key, found bool, err error) {
	given, err := datadir.Variable(m.Env, datadir.KeyVariable)
	if err != nil {
		return datadir.Key{}, false, &cli.UsageError{Err: err}
	}
	return datadir.FindKey(m.global.data, given)
}

// codeKey is findKey where there must be one.
func (m *Main) codeKey() (datadir.Key, error) {
	key, found, err := m.findKey()
	if err == nil && !found {
		err = fmt.Errorf("there is no code key in %s; name the data directory of a server with --data DIR, or set %s", m.global.data, datadir.KeyVariable)
	}
	return key, err
}

// printOne prints one text, in JSON under a name.
func (m *Main) printOne(name, text string) error {
	if m.global.output == outputJSON {
		return cli.JSON(m.Out, map[string]string{name: text})
	}
	_, err := fmt.Fprintln(m.Out, text)
	return err
}

// keyCommand groups the commands about keys of the log.
func (m *Main) keyCommand() *cobra.Command {
	return cli.Group("key", "Keys of the log", m.query(&cobra.Command{
		Use: "seal", Short: "Print the key that checks the seals of messages, for readers without the code key", Args: cli.NoArgs,
		Long: `Print the key that checks the seals of messages, for readers without the code key: push senders, replays on other
machines, servers of role projector. No code can be read with it. It can also make seals: give it only to programs that you
trust not to write to the log, and protect it like a password.

Readers accept it as --seal-key-file FILE, SCRIP_SEAL_KEY_FILE=FILE, or SCRIP_SEAL_KEY.`,
		Example: `  (umask 077; scrip key seal > seal.key)
  pushsender --seal-key-file seal.key`,
	}, func(ctx context.Context, s *session, _ []string) error {
		_, log, err := m.log(ctx, s)
		if err != nil {
			return err
		}
		key, err := m.codeKey()
		if err == nil && code.Fingerprint(key.Key) != log.KeyFingerprint {
			err = fmt.Errorf("the code key of %s is not that of this log; name the data directory of this server with --data DIR", key.From)
		}
		if err != nil {
			return err
		}
		return m.printOne("seal_key", seal.Text(key.Key, log.UUID))
	}))
}

// natsCommand groups what nats-servers outside of scrip need of a log: its accounts, and what follows from its code key.
func (m *Main) natsCommand() *cobra.Command {
	return cli.Group("nats", "Configuration of NATS servers that run on their own", m.natsConfigCommand(), m.natsEnvCommand())
}

func (m *Main) natsConfigCommand() *cobra.Command {
	var lanes uint32
	cmd := &cobra.Command{
		Use: "config --lanes N", Short: "Print the accounts and the mapping for nats-server", Args: cli.NoArgs,
		Long: `Print the accounts and the subject mapping for nats-server, as part of its configuration: one account for scrip's servers, and
one for each kind of user with a key. The embedded NATS server has the same accounts.

nats-server takes three values from its environment: NATS_USER and NATS_PASSWORD, which scrip's servers use, and NATS_ISSUER,
see ` + "`scrip nats env`" + `. Print it again after an upgrade of scrip, and restart the nodes one after the other.`,
		Example: `  scrip nats config --lanes 16 > accounts.conf     # in the nats-server's configuration: include accounts.conf`,
		RunE: func(*cobra.Command, []string) error {
			if lanes < 1 || lanes > topology.MaxLanes {
				return cli.Usagef("--lanes must be from 1 to %d: the number of lanes of the log, see `scrip status`; a new log on its own NATS has 16 unless `scrip serve` was given --lanes", topology.MaxLanes)
			}
			_, err := fmt.Fprint(m.Out, natsauth.File(int(lanes)))
			return err
		},
	}
	cmd.Flags().Uint32Var(&lanes, "lanes", 0, "`NUMBER` of lanes of the log")
	idFlag(cmd, false)
	return cmd
}

func (m *Main) natsEnvCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "env", Short: "Print the environment of nats-servers that follows from the code key", Args: cli.NoArgs,
		Long: `Print two variables of the environment of nats-servers. They follow from the code key, in SCRIP_CODE_KEY or in the --data directory.

NATS_ISSUER is the public key of the servers that answer log-ins with keys. NATS_ROUTES_PASSWORD is a secret: the nodes of a
cluster require it of each other.`,
		Example: `  export SCRIP_CODE_KEY=$(openssl rand -hex 32)     # for a new log: keep a copy in a safe place
  (umask 077; scrip nats env > nats.env)`,
		RunE: func(*cobra.Command, []string) error {
			key, err := m.codeKey()
			if err != nil {
				return err
			}
			issuer, err := callout.IssuerOf(key.Key)
			if err != nil {
				return err
			}
			routes, err := natsauth.RoutesPassword(key.Key)
			if err != nil {
				return err
			}
			if m.global.output == outputJSON {
				return cli.JSON(m.Out, map[string]string{natsauth.IssuerVariable: issuer.Public(), natsauth.RoutesPasswordVariable: routes})
			}
			_, err = fmt.Fprintf(m.Out, "%s=%s\n%s=%s\n", natsauth.IssuerVariable, issuer.Public(), natsauth.RoutesPasswordVariable, routes)
			return err
		},
	}
	idFlag(cmd, false)
	return cmd
}
