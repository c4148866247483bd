package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/readmodel"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

func (m *Main) deadletterCommand() *cobra.Command {
	g := cli.Group("deadletter", "Show, retry and discard dead letters",
		command(m, action[ops.Page[ops.LetterGroup]]{
			use: "groups", name: "deadletter.groups", short: "Group open dead letters by cause", print: listed[ops.LetterGroup](m, "count stream cause oldest newest example"),
		}),
		command(m, action[ops.Page[readmodel.Letter]]{
			use: "list", name: "deadletter.list", short: "List dead letters, newest first", print: m.printLetters,
			example: `  scrip deadletter list
  scrip deadletter list --stream commands --lane 2 --since -24h -o json`,
		}),
		command(m, action[readmodel.ShownLetter]{
			use: "show ID", name: "deadletter.show", args: []string{"id"}, short: "Show a dead letter and the whole line", print: m.printLetter,
			long: `Show a dead letter and its line: the whole line from its stream, or, if the command was purged since, the part that the
dead letter quotes.`,
			example: "  scrip deadletter show SCRIP_CMD_0.12.3",
		}),
		m.deadletterRetry(), m.deadletterDiscard())
	g.Long = `Show, retry and discard dead letters. There are two kinds:

  commands   lines on a command stream that were refused because they are not valid commands. Their senders got the refusal
             if they waited. Correct the line and send it again (retry), or discard it.
  events     lines on an event stream that the read tables could not apply; a correct log has none. They are missing in the
             tables; after an upgrade to a version that supports them, ` + "`scrip rebuild`" + ` applies them in log order.

The id of a dead letter is the position of its line, as stream.message.line: SCRIP_CMD_0.12.3; line 0 is the whole message.
It stays open until it is retried or discarded. ` + "`scrip status`" + ` shows how many are open.

Lines may hold codes and customers: a key that does not see both gets the reasons and no lines.`
	return g
}

func (m *Main) printLetters(page ops.Page[readmodel.Letter]) error {
	var rows [][]string
	for i := range page.Items {
		d := &page.Items[i]
		rows = append(rows, []string{d.ID.String(), d.At.Format(time.RFC3339Nano), string(d.State), plain(d.Reason, 60), plain(d.Payload, 60)})
	}
	return m.table(page.Next, "ID AT STATE REASON PAYLOAD", rows)
}

func (m *Main) printLetter(d readmodel.ShownLetter) error {
	what := "a command line that was refused"
	if d.IsEvent() {
		what = "an event that the read tables could not apply"
	} else if d.Line == 0 {
		what = "a command message that was refused as a whole"
	}
	state := string(d.State)
	if d.SettledAt != nil {
		state += " at " + d.SettledAt.Format(time.RFC3339Nano)
	}
	rows := [][2]string{{d.ID.String(), ""}, {"what", what}, {"reason", d.Reason}, {"at", d.At.Format(time.RFC3339Nano)},
		{"event", fmt.Sprintf("%d/%d/%d", d.Lane, d.EventSequence, d.EventLine)}}
	rows = filled(append(rows, [2]string{"subject", d.Subject}, [2]string{"state", state}, [2]string{"note", d.Note}, [2]string{"quoted", d.Missing}))
	if err := cli.Fields(m.Out, rows); err != nil {
		return err
	}
	text := d.Original
	switch {
	case d.Cut:
		text += "…"
	case text+d.Subject+d.Missing == "": // as servers answer those who see no codes
		text = "Lines may hold codes and customers; your key does not see both."
	}
	_, err := fmt.Fprintf(m.Out, "\n%s\n", cli.Text(strings.TrimRight(text, "\n")))
	return err
}

// retried is the answer to deadletter.retry.
type retried struct {
	State    string            `json:"state"`
	Outcomes []json.RawMessage `json:"outcomes"`
}

func (m *Main) deadletterRetry() *cobra.Command {
	var payload, file, letter string
	cmd := command(m, action[retried]{
		use: "retry ID", name: "deadletter.retry", args: []string{"id"}, without: []string{"lines", "command_id"}, short: "Send a refused command line again, corrected",
		long: `Send a command line again that was refused because it is not a valid command, and print the outcome. Correct it with
--payload, or give one or several lines in a file; without either the line is sent unchanged, which helps after an upgrade
to a version that supports it. Of a message that was refused as a whole each line is sent. A dead letter whose reason counts
further bad lines represents all of them and quotes the first: give the others with --file, their senders have them.

A line is sent under its own id; a line without one gets that of --id, or one that is derived from the dead letter, so that a
second retry has no second effect. This holds per id: a line given with another id takes effect in any case.
When all lines are accepted, the dead letter is closed. A refusal does not change it (exit code 3).

Commands that the line's own sender was not allowed to send, such as pausing a campaign on a producer's subject, are sent
only if they are given with --payload or --file: they would take effect with your rights.

Events cannot be retried: later events were applied without them. After an upgrade to a version that supports them,
` + "`scrip rebuild`" + ` applies them in log order.`,
		example: `  scrip deadletter retry SCRIP_CMD_0.12.3
  scrip deadletter retry SCRIP_CMD_0.12.3 --payload '{"id":"a1","type":"claim","campaign":"summer","customer_id":"alice"}'`,
		prepare: func(cmd *cobra.Command, request fields, args []string) error {
			letter = args[0]
			corrected, err := m.correctedLines(cmd, payload, file)
			if corrected != nil {
				request["lines"] = strings.Split(strings.TrimRight(string(corrected), "\r\n"), "\n")
			}
			if id, _ := cmd.Flags().GetString("id"); id != "" {
				request["command_id"] = id
			}
			return err
		},
		print: func(r retried) error { return m.printRetried(r, letter) },
	})
	cmd.Flags().StringVar(&payload, "payload", "", "`LINE` to send instead")
	cmd.Flags().StringVar(&file, "file", "", "`FILE` with the lines to send instead; - is standard input")
	cmd.Flags().Lookup("id").Usage = "`ID` of the command, if the line has none"
	return cmd
}

// printRetried prints the outcomes.
func (m *Main) printRetried(r retried, letter string) error {
	refused := 0
	for _, line := range r.Outcomes {
		out, err := wire.ParseOutcome(line)
		if err == nil {
			err = m.printOutcome(out)
		}
		if err != nil {
			return err
		}
		if out.Refused() {
			refused++
		}
	}
	if refused == 0 {
		return nil
	}
	fmt.Fprintf(m.Err, "scrip: %d of %d refused; the dead letter stays %s", refused, len(r.Outcomes), r.State)
	if r.State == string(readmodel.Open) {
		fmt.Fprintf(m.Err, "; close it with `scrip deadletter discard %s`", letter)
	}
	fmt.Fprintln(m.Err)
	return cli.ErrRefused
}

// maxCorrected is in bytes, as much as a request may have.
const maxCorrected = 1 << 20

// correctedLines returns the lines of --payload or --file, nil if neither was given.
func (m *Main) correctedLines(cmd *cobra.Command, payload, file string) ([]byte, error) {
	byPayload, byFile := cmd.Flags().Changed("payload"), cmd.Flags().Changed("file")
	text := []byte(payload)
	switch {
	case byPayload && byFile:
		return nil, cli.Usagef("%s takes one of --payload and --file", cli.Path(cmd))
	case byFile:
		in, _, err := m.open([]string{file})
		if err != nil {
			return nil, err
		}
		defer in.Close()
		if text, err = io.ReadAll(io.LimitReader(in, maxCorrected+1)); err != nil {
			return nil, fmt.Errorf("reading the lines: %w", err)
		}
	case !byPayload:
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

func (m *Main) deadletterDiscard() *cobra.Command {
	cmd := command(m, action[ops.LettersDone]{
		use: "discard ID…", name: "deadletter.discard", without: []string{"ids"}, short: "Discard dead letters",
		long: `Discard dead letters: they are no longer open. Nothing is removed from the log or from the tables, and --undo opens them
again. A second discard keeps the note, unless another is given. A dead letter that was retried took effect; neither
discard nor --undo changes it (exit code 3).

The state of a dead letter and its note survive a rebuild of the read tables, but are not in a backup: they are not part of
the log (see scrip backup --help).

With --all, every open one that --stream, --lane, --since and --cause select.`,
		example: `  scrip deadletter discard SCRIP_CMD_0.12.3 --note 'test of the shop'
  scrip deadletter discard --all --stream commands --since -24h`,
		prepare: func(_ *cobra.Command, request fields, args []string) error {
			if len(args) > 0 {
				request["ids"] = args
			}
			return nil
		},
		print: func(done ops.LettersDone) error {
			_, err := fmt.Fprintf(m.Out, "discarded: %d, reopened: %d\n", done.Discarded, done.Reopened)
			return err
		},
	})
	cmd.Args = cobra.ArbitraryArgs
	return cmd
}
