package readmodel

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Retry is a refused command line that is sent again.
type Retry struct {
	Letter *Letter
	// Text has the lines to send instead; nil = those of the letter, unchanged.
	Text []byte
	// ID is of the command, if its line has none; "" = one that is derived from the letter, equal for each retry.
	ID string
	// Lines and IDName are how a user gives Text and ID, for messages.
	Lines, IDName string
	// Clear: the caller sees codes and customers, so an error may name what a line has.
	Clear bool
}

// Commands returns the commands to send. Its errors are refusals: nothing was done.
func (r *Retry) Commands(ctx context.Context, read Source) ([]wire.Command, error) {
	original, text := r.Letter.Original(ctx, read), r.Text
	if text == nil {
		if original.Cut {
			return nil, fmt.Errorf("%s: only the first part of the line is stored (%w); give all of it with %s", r.Letter.ID, original.Missing, r.Lines)
		}
		text = original.Text
	}
	var list []wire.Command
	for n, line := range eventlog.Lines(text) {
		if line = bytes.TrimRight(line, "\r"); len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		c, err := r.command(line, n+1, original.Subject)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s has no line; discard it, or give one with %s", r.Letter.ID, r.Lines)
	}
	if r.ID != "" && len(list) > 1 {
		return nil, fmt.Errorf("%s is for one line, these are %d", r.IDName, len(list))
	}
	return list, nil
}

func (r *Retry) corrected() bool { return r.Text != nil }

// command reads a line.
func (r *Retry) command(line []byte, number int, subject string) (c wire.Command, err error) {
	def := wire.Defaults{NoID: true}
	scope, campaign := sentOn(subject)
	var named struct{ Campaign *string }
	if err := json.Unmarshal(line, &named); err != nil || named.Campaign == nil || !r.corrected() {
		def.Campaign = campaign // the subject's, for a line without one
	}
	if err := wire.ParseCommand(line, def, &c); err != nil {
		hint := "correct it with " + r.Lines
		if r.corrected() {
			hint = "correct it"
		}
		why := wire.Reason(err)
		if r.Clear {
			why = err.Error()
		}
		return c, fmt.Errorf("line %d is still not a command: %s; %s", number, why, hint)
	}
	switch {
	case c.Type == wire.Expire || c.Type == wire.RemindDue:
		return c, fmt.Errorf("line %d: only the scheduler sends %s, and repeats it; discard the dead letter", number, c.Type)
	case !r.corrected() && !scope.Allows(c.Type):
		return c, fmt.Errorf("line %d: its sender may not send %s; to send it with your rights, give the line with %s", number, c.Type, r.Lines)
	}
	if c.N != 0 && !r.corrected() && scope == wire.ScopeProducer {
		return c, fmt.Errorf("line %d: n: %s; to send it with your rights, give the line with %s", number, wire.CodeOnly, r.Lines)
	}
	switch {
	case c.ID != "" && r.ID != "" && c.ID != r.ID:
		return c, fmt.Errorf("line %d has an id; leave out %s, or change it in the line with %s", number, r.IDName, r.Lines)
	case c.ID == "":
		if c.ID = r.ID; c.ID == "" {
			// Equal for each retry, and unique: an event's position, and a line number in the dead letter.
			c.ID = fmt.Sprintf("deadletter-%d-%d-%d-%d", r.Letter.Lane, r.Letter.EventSequence, r.Letter.EventLine, number)
		}
	}
	return c, nil
}

// sentOn returns the scope of who sent on a subject, and its campaign. An unknown subject has the fewest rights, a producer's.
func sentOn(subject string) (scope wire.Scope, campaign string) {
	kind, _, campaign, ok := topology.ParseCommandSubject(subject)
	if !ok || !wire.ValidCampaignName(campaign) {
		campaign = ""
	}
	switch {
	case !ok:
	case kind == topology.Admin:
		return wire.ScopeOperator, campaign
	case kind == topology.Multi:
		return wire.ScopeTrusted, campaign
	case kind == topology.Due:
		return wire.ScopeScheduler, campaign
	}
	return wire.ScopeProducer, campaign
}

// RetryNote describes a retry by the statuses of its outcomes, of which there were all.
func RetryNote(accepted map[string]int, all int) string {
	var counts []string
	for _, status := range slices.Sorted(maps.Keys(accepted)) {
		if all == 1 {
			return status
		}
		counts = append(counts, fmt.Sprintf("%d %s", accepted[status], status))
	}
	return strings.Join(counts, ", ")
}
