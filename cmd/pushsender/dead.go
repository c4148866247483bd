package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/push"
)

func (m *Main) dead(cmd *cobra.Command, _ []string) error {
	nc, js, err := m.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	name := "" // letters of all names, but a key is for one
	if cmd.Flags().Changed("name") || natsx.IsInbox(nc.Opts.InboxPrefix) {
		name = m.name
	}
	var rows [][]string
	customers := 0
	for l, err := range push.Letters(cmd.Context(), js, name) {
		switch {
		case err != nil:
			return err
		case m.json:
			if err := cli.JSON(m.Out, l); err != nil {
				return err
			}
		default:
			customers += len(l.Reminders)
			rows = append(rows, []string{l.Name, fmt.Sprintf("%s/%d", l.Stream, l.Sequence), l.At.Format(time.RFC3339),
				fmt.Sprint(l.Tries), fmt.Sprint(len(l.Reminders)), l.Error})
		}
	}
	if m.json {
		return nil
	}
	if len(rows) > 0 {
		if err := cli.Table(m.Out, "NAME MESSAGE AT TRIES CUSTOMERS ERROR", rows); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(m.Out, "%d customers in %d dead letters\n", customers, len(rows))
	return err
}

func (m *Main) retry(cmd *cobra.Command, _ []string) error {
	nc, js, err := m.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	did, err := push.Retry(cmd.Context(), js, m.opts, m.sender())
	fmt.Fprintf(m.Err, "pushed %d; still dead %d\n", did.Pushed, did.Left)
	if err == nil && did.Left > 0 {
		err = fmt.Errorf("some reminders were not delivered; see `pushsender dead --name %s` for the reasons", m.name)
	}
	return err
}
