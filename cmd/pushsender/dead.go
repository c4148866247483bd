package main

import (
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/streams/push"
)

// dead lists dead letters.
func (m *Main) dead(cmd *cobra.Command, _ []string) error {
	nc, err := m.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	letters, err := m.letters(cmd, nc)
	if err != nil {
		return err
	}
	var rows [][]string
	customers := 0
	for l, err := range letters {
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

// letters lists those of --name. Without it they are of all names, but a key is for one.
func (m *Main) letters(cmd *cobra.Command, nc *nats.Conn) (iter.Seq2[push.DeadLetter, error], error) {
	if keyed(nc) {
		return push.LettersKeyed(cmd.Context(), nc, m.name), nil
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	name := ""
	if cmd.Flags().Changed("name") {
		name = m.name
	}
	return push.Letters(cmd.Context(), js, name), nil
}

// retry retries dead letters.
func (m *Main) retry(cmd *cobra.Command, _ []string) error {
	nc, err := m.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	var did push.Retried
	if keyed(nc) {
		did, err = push.RetryKeyed(cmd.Context(), nc, m.opts, m.sender())
	} else {
		var js jetstream.JetStream
		if js, err = jetstream.New(nc); err == nil {
			did, err = push.Retry(cmd.Context(), js, m.opts, m.sender())
		}
	}
	fmt.Fprintf(m.Err, "pushed %d; still dead %d\n", did.Pushed, did.Left)
	if err == nil && did.Left > 0 {
		err = fmt.Errorf("some reminders were not delivered; see `pushsender dead --name %s` for the reasons", m.name)
	}
	return err
}
