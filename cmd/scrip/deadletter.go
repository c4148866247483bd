package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/readmodel"
	"github.com/seed-4a2410e3/scrip/projections/schema"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

func (m *Main) deadletterCommand() *cobra.Command {
	g := cli.Group("deadletter", "Show, retry and discard dead letters",
		m.deadletterList(), m.deadletterShow(), m.deadletterRetry(), m.deadletterDiscard())
	g.Long = `Show, retry and discard dead letters. There are two kinds:

  commands   lines on a command stream that were refused because they are not valid commands. Their senders got the refusal
             if they waited. Correct the line and send it again (retry), or discard it.
  events     lines on an event stream that the read tables could not apply; a correct log has none. They are missing in the
             tables; after an upgrade to a version that supports them, ` + "`scrip rebuild`" + ` applies them in log order.

The id of a dead letter is the position of its line, as stream/message/line: SCRIP_CMD_0/12/3; line 0 is the whole message.
It stays open until it is retried or discarded. ` + "`scrip status`" + ` shows how many are open.

The key of an operator is enough for list. The others work on the log and the tables themselves, with the credentials of the
servers.

A refused command (exit code 3) with -o json prints {"status":"refused","refusal":…,"message":…}; refusal is
dead_letter_not_found, not_retriable, or that of the command that was sent again.`
	return g
}

// letters is what a command about dead letters works with.
type letters struct {
	*readmodel.Letters
	s  *session
	js jetstream.JetStream
}

// source reads the line that a dead letter quotes.
func (l *letters) source(ctx context.Context, d *readmodel.Letter, sequence uint64) (eventlog.Raw, error) {
	if d.IsEvent() {
		return eventlog.Events(l.js, d.Lane).Get(ctx, sequence)
	}
	return eventlog.Commands(l.js, d.Lane).Get(ctx, sequence)
}

// onLetters finishes a command about dead letters. asked, if it is not nil, does its work by a request to a server, for users with
// a key.
func (m *Main) onLetters(cmd *cobra.Command, asked func(context.Context, *session) error, work func(ctx context.Context, l *letters, args []string) error) *cobra.Command {
	var postgres string
	postgresFlag(cmd, &postgres)
	if cmd.Flags().Lookup("id") == nil {
		unusedIDFlag(cmd)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := m.connect()
		if err != nil {
			return err
		}
		defer s.close()
		ctx := cmd.Context()
		if asked != nil && s.guest(ctx) != "" {
			ctx, cancel := context.WithTimeout(ctx, m.global.timeout)
			defer cancel()
			return asked(ctx, s)
		}
		js, err := s.jetStream(ctx)
		if err != nil {
			return err
		}
		if postgres, err = tablesURL(postgres, s.server); err != nil {
			return err
		}
		connecting, cancel := context.WithTimeout(ctx, m.global.timeout)
		db, err := schema.Connect(connecting, postgres)
		cancel()
		if err != nil {
			return fmt.Errorf("connecting to the read tables, which list the dead letters: %w", err)
		}
		defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
		err = work(ctx, &letters{readmodel.NewLetters(db), s, js}, args)
		switch {
		case errors.Is(err, readmodel.ErrRetried):
			return m.refuse("already_retried", "%s", err)
		case errors.Is(err, readmodel.ErrNoLetter):
			return m.refuse("dead_letter_not_found", "%s", err)
		}
		return err
	}
	return cmd
}

// letterArgs accepts the ids of dead letters.
func letterArgs(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		switch {
		case len(given) < least:
			return cli.Usagef("%s needs ID", cli.Path(cmd))
		case len(given) > most:
			return cli.Usagef("%s takes no further %q", cli.Path(cmd), given[most])
		}
		for _, g := range given {
			if _, err := readmodel.ParseLetterID(g); err != nil {
				return &cli.UsageError{Err: err}
			}
		}
		return nil
	}
}

func (l *letters) find(ctx context.Context, given string) (readmodel.Letter, error) {
	id, err := readmodel.ParseLetterID(given)
	if err != nil {
		return readmodel.Letter{}, &cli.UsageError{Err: err}
	}
	return l.Find(ctx, id)
}

// filterLetters adds the flags that select dead letters.
func (m *Main) filterLetters(cmd *cobra.Command, f *readmodel.LetterFilter, since *wire.Instant) {
	cmd.Flags().Var(&cli.Value{Kind: "STREAM", Parse: func(s string) error {
		f.Stream = s
		return f.Check()
	}}, "stream", "those of commands, of events, or of one stream")
	cmd.Flags().Var(&cli.Value{Kind: "N", Parse: func(s string) error {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil {
			return errors.New("must be the number of a lane, from 0")
		}
		lane := int(n)
		f.Lane = &lane
		return nil
	}}, "lane", "those of one lane")
	cmd.Flags().Var(m.moment(since), "since", "those of this time or later; -24h is a day ago")
}

func (m *Main) deadletterList() *cobra.Command {
	var f readmodel.LetterFilter
	var since wire.Instant
	var state string
	var limit uint32
	cmd := &cobra.Command{
		Use: "list", Short: "List dead letters, newest first", Args: cli.NoArgs,
		Example: `  scrip deadletter list
  scrip deadletter list --stream commands --lane 2 --since -24h -o json`,
	}
	m.filterLetters(cmd, &f, &since)
	const every = "all"
	cmd.Flags().Var(cli.Choice(&state, string(readmodel.Open), string(readmodel.Open), string(readmodel.Retried), string(readmodel.Discarded), every), "state", "those in this state")
	cmd.Flags().Var(cli.Number(&limit, readmodel.DefaultLetters, 1, readmodel.MostLetters), "limit", "how many to list at most")
	cmd.Flags().StringVar(&f.Before, "before", "", "show the page after the one that ended with this `CURSOR`")
	chosen := func() {
		f.Limit = int(limit)
		if since != 0 {
			f.Since = since.Time()
		}
		if state != every {
			f.State = readmodel.LetterState(state)
		}
	}
	return m.onLetters(cmd, func(ctx context.Context, s *session) error {
		chosen()
		var page readmodel.LetterPage
		request := ops.ListLetters{SelectLetters: ops.SelectLetters{Stream: f.Stream, Lane: f.Lane, Since: f.Since}, State: cmp.Or(string(f.State), every), Limit: f.Limit, After: f.Before}
		err := m.ask(ctx, s, "deadletter.list", request, &page)
		var refused *client.RefusedError
		switch {
		case errors.As(err, &refused):
			return m.answer(refused.Outcome)
		case err != nil:
			return err
		}
		return m.printLetters(page)
	}, func(ctx context.Context, l *letters, _ []string) error {
		chosen()
		list, older, err := l.List(ctx, f)
		if err != nil {
			return err
		}
		return m.printLetters(readmodel.LetterPage{Letters: list, Next: older})
	})
}

func (m *Main) printLetters(page readmodel.LetterPage) error {
	if m.global.output == outputJSON {
		out := map[string]any{"dead_letters": append([]readmodel.Letter{}, page.Letters...)}
		if page.Next != "" {
			out["more"], out["next"] = true, page.Next
		}
		return cli.JSON(m.Out, out)
	}
	var rows [][]string
	for i := range page.Letters {
		d := &page.Letters[i]
		rows = append(rows, []string{d.ID.String(), d.At.Format(time.RFC3339Nano), string(d.State), plain(d.Reason, 60), plain(d.Payload, 60)})
	}
	if err := cli.Table(m.Out, "ID AT STATE REASON PAYLOAD", rows); err != nil {
		return err
	}
	if page.Next != "" {
		fmt.Fprintf(m.Out, "there is more: --before '%s'\n", page.Next)
	}
	return nil
}

// shownLetter is a dead letter with the line it quotes.
type shownLetter struct {
	readmodel.Letter
	// Original is the whole line, or the rest that is still known.
	Original string `json:"original"`
	Subject  string `json:"subject,omitempty"`
	// Missing is why Original is only the quote of the dead letter.
	Missing string `json:"original_missing,omitempty"`
	Cut     bool   `json:"original_cut,omitempty"`
}

func (m *Main) deadletterShow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show a dead letter and the whole line", Args: letterArgs(1, 1),
		Long: `Show a dead letter and its line: the whole line from its stream, or, if the command was purged since, the part that the
dead letter quotes.`,
		Example: "  scrip deadletter show SCRIP_CMD_0/12/3",
	}
	return m.onLetters(cmd, nil, func(ctx context.Context, l *letters, given []string) error {
		d, err := l.find(ctx, given[0])
		if err != nil {
			return err
		}
		original := d.Original(ctx, l.source)
		show := shownLetter{Letter: d, Original: string(original.Text), Subject: original.Subject, Cut: original.Cut}
		if original.Missing != nil {
			show.Missing = original.Missing.Error()
		}
		if m.global.output == outputJSON {
			return cli.JSON(m.Out, show)
		}
		what := "a command line that was refused"
		if d.IsEvent() {
			what = "an event that the read tables could not apply"
		} else if d.Line == 0 {
			what = "a command message that was refused as a whole"
		}
		rows := [][2]string{{d.ID.String(), ""}, {"what", what}, {"reason", d.Reason}, {"at", d.At.Format(time.RFC3339Nano)},
			{"event", fmt.Sprintf("%d/%d/%d", d.Lane, d.EventSequence, d.EventLine)}}
		if show.Subject != "" {
			rows = append(rows, [2]string{"subject", show.Subject})
		}
		state := string(d.State)
		if d.SettledAt != nil {
			state += " at " + d.SettledAt.Format(time.RFC3339Nano)
		}
		rows = append(rows, [2]string{"state", state})
		if d.Note != "" {
			rows = append(rows, [2]string{"note", d.Note})
		}
		if show.Missing != "" {
			rows = append(rows, [2]string{"quoted", show.Missing})
		}
		if err := cli.Fields(m.Out, rows); err != nil {
			return err
		}
		text := show.Original
		if show.Cut {
			text += "…"
		}
		_, err = fmt.Fprintf(m.Out, "\n%s\n", cli.Text(strings.TrimRight(text, "\n")))
		return err
	})
}

func (m *Main) deadletterDiscard() *cobra.Command {
	var f readmodel.LetterFilter
	var since wire.Instant
	var everything, undo bool
	var note string
	cmd := &cobra.Command{
		Use: "discard ID…", Short: "Discard dead letters",
		Long: `Discard dead letters: they are no longer open. Nothing is removed from the log or from the tables, and --undo opens them
again. A second discard keeps the note, unless another is given. A dead letter that was retried took effect; neither
discard nor --undo changes it (exit code 3).

The state of a dead letter and its note survive a rebuild of the read tables, but are not in a backup: they are not part of
the log (see scrip backup --help).

With --all, every open one that --stream, --lane and --since select.`,
		Example: `  scrip deadletter discard SCRIP_CMD_0/12/3 --note 'test of the shop'
  scrip deadletter discard --all --stream commands --since -24h`,
	}
	cmd.Flags().StringVar(&note, "note", "", "`TEXT` stored with it")
	cmd.Flags().BoolVar(&everything, "all", false, "all open ones")
	cmd.Flags().BoolVar(&undo, "undo", false, "open them again")
	m.filterLetters(cmd, &f, &since)
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		filtered := f.Stream != "" || f.Lane != nil || since != 0
		switch {
		case everything && (len(given) > 0 || undo):
			return cli.Usagef("%s --all takes no ID and no --undo", cli.Path(cmd))
		case !everything && filtered:
			return cli.Usagef("%s: --stream, --lane and --since belong to --all", cli.Path(cmd))
		case everything:
			return nil
		}
		return letterArgs(1, 1000)(cmd, given)
	}
	return m.onLetters(cmd, nil, func(ctx context.Context, l *letters, given []string) error {
		done := int64(len(given))
		if everything {
			if since != 0 {
				f.Since = since.Time()
			}
			var err error
			if done, err = l.DiscardAll(ctx, f, note); err != nil {
				return err
			}
		}
		for i, id := range given {
			d, err := l.find(ctx, id)
			if err == nil && undo {
				err = l.Reopen(ctx, &d)
			} else if err == nil {
				err = l.Settle(ctx, &d, readmodel.Discarded, note)
			}
			if err != nil {
				return fmt.Errorf("%w (done before it: %d)", err, i)
			}
		}
		verb := "discarded"
		if undo {
			verb = "reopened"
		}
		if m.global.output == outputJSON {
			return cli.JSON(m.Out, map[string]any{verb: done})
		}
		_, err := fmt.Fprintf(m.Out, "%s: %d\n", verb, done)
		return err
	})
}
