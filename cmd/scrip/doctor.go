package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/internal/doctor"
	"github.com/seed-4a2410e3/scrip/cmd/internal/server"
	"github.com/seed-4a2410e3/scrip/streams/natsd"
)

// errUnwell ends a doctor whose findings have been printed.
var errUnwell = errors.New("something fails; see the column FIX")

// doctorCommand examines the machine and the servers that scrip uses.
func (m *Main) doctorCommand() *cobra.Command {
	var o doctor.Options
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check the machine, NATS and PostgreSQL, and name what to mend", Args: cli.NoArgs,
		Long: `Check the machine, NATS and PostgreSQL: ports, rights, disk latency, space, memory, open files, versions, settings,
clocks. Give the flags of "scrip serve", before a server starts or while it runs. Each finding is ok, warn or fail, with
what to do. The exit code is 1 if one of them is fail.

It changes nothing. --as logs in to NATS as a user, looks its key up, and lists what it may do. NATS shows whether it syncs its files only on its monitoring port: name it with --monitor.`,
		Example: `  scrip doctor
  scrip doctor --nats nats://USER:PASSWORD@nats-1:4222 --postgres postgres://… --monitor http://nats-1:8222,http://nats-2:8222
  scrip doctor --as sk_producer_01h8z3qk…
  scrip doctor --as nats://SHOP:PASSWORD@nats-1:4222 -o json`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			o.Data, o.NATS = m.global.data, m.global.nats
			if o.NATSOptions, err = m.natsFlags.Options(); err != nil {
				return err
			}
			findings, err := doctor.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			if err := m.printFindings(findings); err != nil {
				return err
			}
			if doctor.Worst(findings) == doctor.Fail {
				return errUnwell
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Postgres, "postgres", "", "`URL` of the database for the read tables; absent = a private PostgreSQL")
	f.StringVar(&o.NATSListen, "nats-listen", natsd.DefaultListen, "`HOST:PORT` of the embedded NATS server")
	f.StringVar(&o.HTTPListen, "http-listen", server.DefaultHTTPListen, "`HOST:PORT` of HTTP")
	f.StringVar(&o.Monitor, "monitor", "", "`URL`s of NATS servers' monitoring ports, separated by commas")
	f.StringVar(&o.As, "as", "", "`KEY` of a user to log in as, or a NATS URL with credentials")
	cli.WithVariable(f, "postgres", "nats-listen", "http-listen")
	idFlag(cmd, false)
	return cmd
}

func (m *Main) printFindings(findings []doctor.Finding) error {
	if m.global.output == outputJSON {
		for _, f := range findings {
			if err := cli.JSON(m.Out, f); err != nil {
				return err
			}
		}
		return nil
	}
	var rows [][]string
	for _, f := range findings {
		rows = append(rows, []string{string(f.Level), f.Check, f.What, f.Fix})
	}
	if err := cli.Table(m.Out, "LEVEL CHECK FOUND FIX", rows); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}
