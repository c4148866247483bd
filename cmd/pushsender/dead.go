package main

import (
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/terminal"
	"github.com/seed-4a2410e3/scrip/streams/push"
)

// dead lists dead letters.
func (m *Main) dead(cmd *cobra.Command, _ []string) error {
	js, err := m.connect()
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	name := ""
	if cmd.Flags().Changed("name") {
		name = m.name
	}
	lines := json.NewEncoder(m.Out)
	lines.SetEscapeHTML(false)
	table := tabwriter.NewWriter(m.Out, 0, 0, 2, ' ', 0)
	letters, customers := 0, 0
	for l, err := range push.Letters(cmd.Context(), js, name) {
		switch {
		case err != nil:
			return err
		case m.json:
			if err := lines.Encode(l); err != nil {
				return err
			}
			continue
		case letters == 0:
			fmt.Fprintln(table, "NAME\tMESSAGE\tGIVEN UP\tTRIES\tCUSTOMERS\tERROR")
		}
		letters, customers = letters+1, customers+len(l.Reminders)
		fmt.Fprintf(table, "%s\t%s/%d\t%s\t%d\t%d\t%s\n", terminal.Line(l.Name), terminal.Line(l.Stream), l.Sequence, l.At.Format(time.RFC3339), l.Tries, len(l.Reminders), terminal.Line(l.Error))
	}
	if m.json {
		return nil
	}
	fmt.Fprintf(table, "%d customers in %d dead letters\n", customers, letters)
	return table.Flush()
}

// retry tries dead letters again.
func (m *Main) retry(cmd *cobra.Command, _ []string) error {
	js, err := m.connect()
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	did, err := push.Retry(cmd.Context(), js, m.opts, m.sender())
	fmt.Fprintf(m.Err, "pushed %d; still dead %d\n", did.Pushed, did.Left)
	if err == nil && did.Left > 0 {
		err = fmt.Errorf("not everybody could be told; `pushsender dead --name %s` says why", m.name)
	}
	return err
}
