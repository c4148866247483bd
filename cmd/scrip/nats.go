package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/datadir"
	"github.com/seed-4a2410e3/scrip/streams/access/callout"
	"github.com/seed-4a2410e3/scrip/streams/access/natsauth"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// natsCommand groups the commands for who runs nats-servers of their own.
func (m *Main) natsCommand() *cobra.Command {
	return cli.Group("nats", "Configuration of NATS servers that run on their own", m.natsConfigCommand(), m.natsIssuerCommand())
}

func (m *Main) natsConfigCommand() *cobra.Command {
	var lanes uint32
	cmd := &cobra.Command{
		Use: "config --lanes N", Short: "Print the accounts and the mapping for nats-server", Args: cli.NoArgs,
		Long: `Print the accounts and the subject mapping for nats-server, as part of its configuration: one account for scrip's servers, and
one for each kind of user with a key. The embedded NATS server has the same accounts.

nats-server takes three values from its environment: NATS_USER and NATS_PASSWORD, which scrip's servers use, and NATS_ISSUER,
see ` + "`scrip nats issuer`" + `. Print it again after an upgrade of scrip, and restart the nodes one after the other.`,
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
	unusedIDFlag(cmd)
	return cmd
}

func (m *Main) natsIssuerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "issuer", Short: "Print the public key of the servers that answer log-ins", Args: cli.NoArgs,
		Long: `Print the public key of the servers that answer log-ins to NATS with keys. nats-server needs it as NATS_ISSUER. It follows from the
code key, in SCRIP_CODE_KEY or in the --data directory, and is no secret.`,
		Example: `  export SCRIP_CODE_KEY=$(openssl rand -hex 32)     # for a new log: keep a copy in a safe place
  export NATS_ISSUER=$(scrip nats issuer)`,
		RunE: func(*cobra.Command, []string) error {
			given, err := datadir.Variable(m.Env, datadir.KeyVariable)
			if err != nil {
				return &cli.UsageError{Err: err}
			}
			key, found, err := datadir.FindKey(m.global.data, given)
			if err == nil && !found {
				err = fmt.Errorf("there is no code key in %s; name the data directory of a server with --data DIR, or set %s", m.global.data, datadir.KeyVariable)
			}
			if err != nil {
				return err
			}
			issuer, err := callout.IssuerOf(key.Key)
			if err != nil {
				return err
			}
			if m.global.output == outputJSON {
				return cli.JSON(m.Out, map[string]string{"issuer": issuer.Public()})
			}
			_, err = fmt.Fprintln(m.Out, issuer.Public())
			return err
		},
	}
	unusedIDFlag(cmd)
	return cmd
}
