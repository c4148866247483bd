package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/projections/confine"
)

// postgresCommand groups what a PostgreSQL outside of scrip needs.
func (m *Main) postgresCommand() *cobra.Command {
	return cli.Group("postgres", "Rights in a PostgreSQL that runs on its own", m.postgresRightsCommand())
}

func (m *Main) postgresRightsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rights ROLE", Args: cli.Args("ROLE"),
		Short: "Print what a superuser runs in the database of the read tables, for role ROLE of scrip's servers",
		Long: `Print what a superuser runs in the database of the read tables, as SQL. ROLE is the role in the URL of the
servers' --postgres.

PostgreSQL lets everybody do more than read: make large objects, take locks, fill its queue of notifications, and the
disk by temporary files. The statements take that from everybody in this one database and give it to ROLE, so the
database should be scrip's alone. They also make functions by which ROLE makes roles for analysts and SQL projections,
bounds them and ends their sessions, without CREATEROLE. Run them again after an upgrade of scrip or of PostgreSQL;
repeated, they change nothing. A private PostgreSQL has them, and servers whose role is a superuser run them without
help.`,
		Example: `  scrip postgres rights scrip | psql -U postgres -d scrip -v ON_ERROR_STOP=1 -1 -f -`,
		RunE: func(_ *cobra.Command, args []string) error {
			_, err := fmt.Fprint(m.Out, confine.Script(args[0]))
			return err
		},
	}
	idFlag(cmd, false)
	return cmd
}
