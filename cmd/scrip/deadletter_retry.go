package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/deadletter"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

func (m *Main) deadletterRetry() *cobra.Command {
	var payload, file, id string
	cmd := &cobra.Command{
		Use: "retry ID", Short: "Send a command line again, mended", Args: letterArgs(1, 1),
		Long: `Send a command line again that was refused because nobody could make sense of it, and say the outcome. Mend it with
--payload, or give one or several lines in a file; without either the line is sent as it was, which helps after an upgrade
that understands it. Of a message that was refused as a whole each line is sent. A dead letter whose reason counts further
bad lines stands for all of them and quotes the first: give the others with --file, their senders have them.

A line is sent under its own id; one without gets an id that follows from the dead letter, so that retrying again takes
effect once. Once holds per id: a line given with another id takes effect again, whatever became of the first.
When all lines are accepted the dead letter is closed. A refusal leaves it as it was (exit code 3).

Commands that the line's own sender was not allowed to send, such as pausing a campaign on a producer's subject, are sent
only if they are given with --payload or --file: they would take effect with your rights.

Events cannot be retried: what came later in the log was applied without them. After an upgrade that knows them,
` + "`scrip rebuild`" + ` applies them in their place.`,
		Example: `  scrip deadletter retry SCRIP_CMD_0/12/3
  scrip deadletter retry SCRIP_CMD_0/12/3 --payload '{"id":"a1","type":"claim","campaign":"summer","customer_id":"alice"}'`,
	}
	cmd.Flags().StringVar(&payload, "payload", "", "`LINE` to send in its place")
	cmd.Flags().StringVar(&file, "file", "", "`FILE` with the lines to send in its place; - is standard input")
	cmd.Flags().StringVar(&id, "id", "", "`ID` of the command, where the line has none")
	return m.onLetters(cmd, func(ctx context.Context, l *letters, given []string) error {
		mended, err := m.mended(cmd, payload, file)
		if err != nil {
			return err
		}
		d, err := l.find(ctx, given[0])
		if err != nil {
			return err
		}
		if d.IsEvent() {
			return m.refuse("not_retriable", "%s is an event. It cannot be applied out of its place: what came later was applied without it. "+
				"With a scrip that knows it, `scrip rebuild` applies it where it belongs", d.ID)
		}
		r := retry{letter: &d, mended: mended != nil, id: id}
		lines, err := r.lines(ctx, l, mended)
		if err != nil {
			return m.refuse("not_retriable", "%s", err)
		}
		return m.sendAgain(ctx, l, &d, lines)
	})
}

// mended is what was given to be sent instead, nil if nothing was.
func (m *Main) mended(cmd *cobra.Command, payload, file string) ([]byte, error) {
	byPayload, byFile := cmd.Flags().Changed("payload"), cmd.Flags().Changed("file")
	var text []byte
	switch {
	case byPayload && byFile:
		return nil, usagef("%s takes one of --payload and --file", path(cmd))
	case byPayload:
		text = []byte(payload)
	case byFile && file == "-":
		if m.TerminalIn {
			return nil, usagef("%s --file - reads lines from standard input; give them there, or name a file", path(cmd))
		}
		var err error
		if text, err = io.ReadAll(io.LimitReader(m.In, mostMended+1)); err != nil {
			return nil, fmt.Errorf("reading the lines: %w", err)
		}
	case byFile:
		info, err := os.Stat(file)
		switch {
		case err != nil:
			return nil, usagef("--file: %w", err)
		case !info.Mode().IsRegular():
			return nil, usagef("--file %s is no file", file)
		case info.Size() > mostMended:
			return nil, usagef("--file %s has %d bytes, at most %d are allowed", file, info.Size(), mostMended)
		}
		if text, err = os.ReadFile(file); err != nil {
			return nil, fmt.Errorf("reading the lines: %w", err)
		}
	default:
		return nil, nil
	}
	switch {
	case len(text) > mostMended:
		return nil, usagef("%s takes at most %d bytes of lines", path(cmd), mostMended)
	case len(bytes.TrimSpace(text)) == 0:
		return nil, usagef("%s: there is no line in what was given", path(cmd))
	}
	return text, nil
}

// mostMended is far above a message.
const mostMended = 16 << 20

// retry makes commands of what is to be sent.
type retry struct {
	letter *deadletter.Letter
	mended bool
	id     string // given by --id
}

// lines are the commands to send. Its errors are refusals: nothing was done.
func (r *retry) lines(ctx context.Context, l *letters, text []byte) ([]wire.Command, error) {
	original := r.letter.Original(ctx, l.source)
	if text == nil {
		if original.Cut {
			return nil, fmt.Errorf("%s: only the beginning of the line is known any more (%w); give all of it with --payload or --file", r.letter.ID, original.Missing)
		}
		text = original.Text
	}
	subject := sentOn(original.Subject)
	var list []wire.Command
	for n, line := range eventlog.Lines(text) {
		if line = bytes.TrimRight(line, "\r"); len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		c, err := r.command(line, n+1, subject)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: there is no line in it; discard it, or give one with --payload", r.letter.ID)
	}
	if r.id != "" && len(list) > 1 {
		return nil, fmt.Errorf("--id is for one line, these are %d", len(list))
	}
	return list, nil
}

// command reads a line.
func (r *retry) command(line []byte, number int, on sender) (c wire.Command, err error) {
	def := wire.Defaults{NoID: true}
	var named struct{ Campaign *string }
	if err := json.Unmarshal(line, &named); err != nil || named.Campaign == nil || !r.mended {
		def.Campaign = on.campaign // what the line leaves out its subject says
	}
	if err := wire.ParseCommand(line, def, &c); err != nil {
		hint := "mend it with --payload or --file"
		if r.mended {
			hint = "mend it"
		}
		return c, fmt.Errorf("line %d is still not a command: %w; %s", number, err, hint)
	}
	switch {
	case c.Type == wire.Expire || c.Type == wire.RemindDue:
		return c, fmt.Errorf("line %d: %s is the scheduler's, which sends it by itself; discard the dead letter", number, c.Type)
	case !r.mended && !on.scope.Allows(c.Type):
		return c, fmt.Errorf("line %d: who sent it on %s may not send %s; if you want it to happen, give the line with --payload", number, on, c.Type)
	}
	switch {
	case c.ID != "" && r.id != "" && c.ID != r.id:
		return c, fmt.Errorf("line %d has the id %s of its own; leave out --id, or change it in the line with --payload", number, c.ID)
	case c.ID == "":
		if c.ID = r.id; c.ID == "" {
			// The same whenever it is retried, and no other's: an event's place, and a line in it.
			c.ID = fmt.Sprintf("deadletter-%d-%d-%d-%d", r.letter.Lane, r.letter.EventSequence, r.letter.EventLine, number)
		}
	}
	return c, nil
}

// sender is who may have sent a line, by its subject.
type sender struct {
	subject, campaign string
	scope             wire.Scope
}

func (s sender) String() string {
	if s.subject == "" {
		return "a subject that is not known any more"
	}
	return s.subject
}

// sentOn reads a subject. One that is not known any more was a producer's, for all we know.
func sentOn(subject string) sender {
	s := sender{subject: subject, scope: wire.ScopeProducer}
	kind, _, campaign, ok := topology.ParseCommandSubject(subject)
	if !ok {
		return s
	}
	switch kind {
	case topology.Cmd, topology.Shop:
	case topology.Admin:
		s.scope = wire.ScopeOperator
	case topology.Multi:
		s.scope = wire.ScopeTrusted
	case topology.Due:
		s.scope = wire.ScopeScheduler
	}
	if wire.ValidCampaignName(campaign) {
		s.campaign = campaign
	}
	return s
}

// sendAgain sends commands one after the other, prints their outcomes, and closes the dead letter if all were accepted.
func (m *Main) sendAgain(ctx context.Context, l *letters, d *deadletter.Letter, commands []wire.Command) error {
	accepted := map[string]int{}
	refused := 0
	for _, c := range commands {
		asking, cancel := context.WithTimeout(ctx, m.global.timeout)
		out, err := l.s.Do(asking, c)
		cancel()
		if err != nil {
			return fmt.Errorf("%w; the dead letter stays %s: run this again, what has taken effect is answered as a repeat", explain(err), d.State)
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
		return errRefused
	}
	if err := l.Settle(ctx, d, deadletter.Retried, note(accepted, len(commands))); err != nil {
		return errors.Join(fmt.Errorf("the command took effect, and the dead letter stays %s all the same", d.State), err)
	}
	return nil
}

// stays says how a dead letter stands after a refusal, which changes nothing.
func stays(d *deadletter.Letter) string {
	switch {
	case d.State == deadletter.Retried && d.Note != "":
		return fmt.Sprintf("the dead letter stays retried: it was accepted before (%s)", d.Note)
	case d.State != deadletter.Open:
		return fmt.Sprintf("the dead letter stays %s", d.State)
	}
	return fmt.Sprintf("the dead letter stays open, `scrip deadletter discard %s` closes it", d.ID)
}

// note says what a retry brought.
func note(accepted map[string]int, all int) string {
	var words []string
	for _, status := range slices.Sorted(maps.Keys(accepted)) {
		if all == 1 {
			return status
		}
		words = append(words, fmt.Sprintf("%d %s", accepted[status], status))
	}
	return strings.Join(words, ", ")
}
