package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/readmodel"
)

func (m *Main) deadletterRetry() *cobra.Command {
	var payload, file, id string
	cmd := &cobra.Command{
		Use: "retry ID", Short: "Send a refused command line again, corrected", Args: letterArgs(1, 1),
		Long: `Send a command line again that was refused because it is not a valid command, and print the outcome. Correct it with
--payload, or give one or several lines in a file; without either the line is sent unchanged, which helps after an upgrade
to a version that supports it. Of a message that was refused as a whole each line is sent. A dead letter whose reason counts
further bad lines represents all of them and quotes the first: give the others with --file, their senders have them.

A line is sent under its own id; a line without one gets an id that is derived from the dead letter, so that a second retry
has no second effect. This holds per id: a line given with another id takes effect in any case.
When all lines are accepted, the dead letter is closed. A refusal does not change it (exit code 3).

Commands that the line's own sender was not allowed to send, such as pausing a campaign on a producer's subject, are sent
only if they are given with --payload or --file: they would take effect with your rights.

Events cannot be retried: later events were applied without them. After an upgrade to a version that supports them,
` + "`scrip rebuild`" + ` applies them in log order.`,
		Example: `  scrip deadletter retry SCRIP_CMD_0/12/3
  scrip deadletter retry SCRIP_CMD_0/12/3 --payload '{"id":"a1","type":"claim","campaign":"summer","customer_id":"alice"}'`,
	}
	cmd.Flags().StringVar(&payload, "payload", "", "`LINE` to send instead")
	cmd.Flags().StringVar(&file, "file", "", "`FILE` with the lines to send instead; - is standard input")
	cmd.Flags().StringVar(&id, "id", "", "`ID` of the command, if the line has none")
	return m.onLetters(cmd, nil, func(ctx context.Context, l *letters, given []string) error {
		corrected, err := m.correctedLines(cmd, payload, file)
		if err != nil {
			return err
		}
		d, err := l.find(ctx, given[0])
		if err != nil {
			return err
		}
		if d.IsEvent() {
			return m.refuse("not_retriable", "%s is an event. It cannot be applied now: later events were applied without it. "+
				"With a scrip version that supports it, `scrip rebuild` applies it in log order", d.ID)
		}
		r := readmodel.Retry{Letter: &d, Text: corrected, ID: id, Lines: "--payload or --file", IDName: "--id"}
		lines, err := r.Commands(ctx, l.source)
		if err != nil {
			return m.refuse("not_retriable", "%s", err)
		}
		return m.sendAgain(ctx, l, &d, lines)
	})
}

// correctedLines returns the lines of --payload or --file, nil if neither was given.
func (m *Main) correctedLines(cmd *cobra.Command, payload, file string) ([]byte, error) {
	byPayload, byFile := cmd.Flags().Changed("payload"), cmd.Flags().Changed("file")
	var text []byte
	switch {
	case byPayload && byFile:
		return nil, cli.Usagef("%s takes one of --payload and --file", cli.Path(cmd))
	case byPayload:
		text = []byte(payload)
	case byFile && file == "-":
		if m.TerminalIn {
			return nil, cli.Usagef("%s --file - reads lines from standard input; pipe them to it, or name a file", cli.Path(cmd))
		}
		var err error
		if text, err = io.ReadAll(io.LimitReader(m.In, maxCorrected+1)); err != nil {
			return nil, fmt.Errorf("reading the lines: %w", err)
		}
	case byFile:
		info, err := os.Stat(file)
		switch {
		case err != nil:
			return nil, cli.Usagef("--file: %w", err)
		case !info.Mode().IsRegular():
			return nil, cli.Usagef("--file %s is not a file", file)
		case info.Size() > maxCorrected:
			return nil, cli.Usagef("--file %s has %d bytes, at most %d are allowed", file, info.Size(), maxCorrected)
		}
		if text, err = os.ReadFile(file); err != nil {
			return nil, fmt.Errorf("reading the lines: %w", err)
		}
	default:
		return nil, nil
	}
	switch {
	case len(text) > maxCorrected:
		return nil, cli.Usagef("%s takes at most %d bytes of lines", cli.Path(cmd), maxCorrected)
	case len(bytes.TrimSpace(text)) == 0:
		return nil, cli.Usagef("%s: the given text has no line", cli.Path(cmd))
	}
	return text, nil
}

// maxCorrected is in bytes, far more than a message may have.
const maxCorrected = 16 << 20

// sendAgain sends commands one after the other, prints their outcomes, and closes the dead letter if all were accepted.
func (m *Main) sendAgain(ctx context.Context, l *letters, d *readmodel.Letter, commands []wire.Command) error {
	accepted := map[string]int{}
	refused := 0
	for _, c := range commands {
		sending, cancel := context.WithTimeout(ctx, m.global.timeout)
		out, err := l.s.Do(sending, c)
		cancel()
		if err != nil {
			return fmt.Errorf("%w; the dead letter stays %s: run this again, lines that took effect are repeats", explain(err), d.State)
		}
		if err := m.printOutcome(out); err != nil {
			return err
		}
		if out.Refused() {
			refused++
		} else {
			accepted[out.Status]++
		}
	}
	if refused > 0 {
		fmt.Fprintf(m.Err, "scrip: %d of %d refused; %s\n", refused, len(commands), stays(d))
		return cli.ErrRefused
	}
	if err := l.Settle(ctx, d, readmodel.Retried, readmodel.RetryNote(accepted, len(commands))); err != nil {
		return errors.Join(fmt.Errorf("the command took effect, but the dead letter stays %s", d.State), err)
	}
	return nil
}

// stays describes a dead letter's state after a refusal, which does not change it.
func stays(d *readmodel.Letter) string {
	switch {
	case d.State == readmodel.Retried && d.Note != "":
		return fmt.Sprintf("the dead letter stays retried: it was accepted before (%s)", d.Note)
	case d.State != readmodel.Open:
		return fmt.Sprintf("the dead letter stays %s", d.State)
	}
	return fmt.Sprintf("the dead letter stays open; close it with `scrip deadletter discard %s`", d.ID)
}
