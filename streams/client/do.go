package client

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Do sends a command and waits for its outcome. A command without ID gets a new one; it is in the outcome and in the
// errors. When ctx ends first the error is an *UnknownError, or a *NotSentError if the command was never sent; if its deadline
// passes and the log was reachable but could not store anything all the time, the outcome is the refusal not_durable.
func (c *Client) Do(ctx context.Context, cmd wire.Command) (wire.Outcome, error) {
	if err := complete(&cmd); err != nil {
		return invalid(&cmd, err), nil
	}
	w := command.NewWaiter()
	ticket, err := c.send(ctx, &cmd, command.Call{To: w})
	return w.Wait(ctx, cmd.ID, ticket, err)
}

// DoAsync sends a command and returns; many can be in flight from one goroutine. fn is called once with the outcome,
// unless DoAsync itself returns an error, which means that the command had no effect. It waits only while MaxPending
// commands of the lane are in flight, or for the first description of the log; ctx ends that wait. The deadline of ctx, or
// Options.Timeout if it has none, is also the command's; cancelling ctx later changes nothing.
//
// fn must return at once: it runs on the goroutine that reads all answers. It may send the next command while fewer
// than MaxPending commands are in flight.
func (c *Client) DoAsync(ctx context.Context, cmd wire.Command, fn func(wire.Outcome, error)) error {
	if err := complete(&cmd); err != nil {
		fn(invalid(&cmd, err), nil)
		return nil
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(c.opts.Timeout)
	}
	_, err := c.send(ctx, &cmd, command.Call{Deadline: deadline, To: &command.Func{ID: cmd.ID, Do: fn}})
	return err
}

// send sends a complete command: to its lane, or to the micro service.
func (c *Client) send(ctx context.Context, cmd *wire.Command, call command.Call) (command.Ticket, error) {
	if c.dead.Load() {
		return command.Ticket{}, &NotSentError{ID: cmd.ID, Cause: ErrClosed}
	}
	spec := cmd.Type.Spec()
	known := spec.NamesCampaign() || spec.Scope == wire.ScopeProducer && cmd.Campaign != "" && cmd.N == 0 && c.opts.By == ""
	if spec.Endpoint != "" && !known {
		// Commands with a code alone, because the service knows its lane, and those of people and operators, because the right to publish
		// on the subject for commands of many campaigns includes an operator's rights.
		call.By = c.opts.By
		return c.lanes.Request(ctx, "scrip."+spec.Endpoint, cmd, call)
	}
	log, err := c.finder.log(ctx)
	switch {
	case err != nil:
		return command.Ticket{}, &NotSentError{ID: cmd.ID, Cause: err}
	case log.requests && spec.Endpoint != "":
		subject, named := strings.CutSuffix("scrip."+spec.Endpoint, "*")
		if named {
			subject += cmd.Campaign
		}
		return c.lanes.Request(ctx, subject, cmd, call)
	}
	return c.lanes.SendTo(ctx, topology.LaneOf(cmd.Campaign, log.lanes), cmd, call)
}

// complete gives a command an id if it has none, and checks it. The lane checks most of it; here a command is rejected if it could
// not be answered (an id that no outcome can carry), if its campaign would be another subject, or if it would be changed: bytes
// that are not UTF-8, which JSON cannot hold, and raw JSON with line breaks, which would become several commands.
func complete(cmd *wire.Command) error {
	command.EnsureID(cmd)
	if cmd.Type.Spec().NamesCampaign() && !wire.ValidCampaignName(cmd.Campaign) {
		return fmt.Errorf("campaign: must be 1 to %d of A-Z a-z 0-9 _ -", wire.MaxCampaignName)
	}
	raw := len(cmd.Attributes) > 0 || cmd.Type == wire.CreateCampaign || cmd.Type == wire.UpdateCampaign || len(cmd.Codes) > 0
	if raw || !plain(cmd.ID, wire.MaxCommandID) {
		var parsed wire.Command
		if err := wire.ParseCommand(cmd.AppendJSON(nil), wire.Defaults{}, &parsed); err != nil {
			return err
		}
		*cmd = parsed // attributes and benefit are compact now
		return nil
	}
	for text := range cmd.Texts {
		if !utf8.ValidString(*text) {
			return fmt.Errorf("%q is not valid UTF-8", *text)
		}
	}
	return nil
}

// plain reports whether s is 1 to most bytes of printable ASCII.
func plain(s string, most int) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) > 0 && len(s) <= most
}

func invalid(cmd *wire.Command, err error) wire.Outcome {
	return wire.Outcome{
		ID: cmd.ID, Status: wire.StatusRefused, Refusal: wire.Invalid, Campaign: cmd.Campaign, Message: err.Error(),
	}
}
