package manage

import (
	"bytes"
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// forbidden is the refusal of a line that the key may not send.
const forbidden = wire.Refusal(web.Forbidden)

func (a *API) bulkRoute() {
	a.stream(Route{Method: http.MethodPost, Path: "/v1/commands", ID: "sendCommands", Tag: "shop", Summary: "Send many commands",
		About: "Lines of claim, redeem, rollback, remind and unremind as CONTRACT.md has them, up to 1,000 and 256 KiB, each with an id of its own. " +
			"The answer has an outcome for each, in their order. A line that was refused has status refused; one without status has an unknown result: send it again with its id.",
		Operation: access.OpClaim, Later: true, Body: wire.MaxMessage},
		huma.Operation{
			RequestBody: &huma.RequestBody{Required: true, Content: lines(a.schema(CommandLine{}, "CommandLine"))},
			Responses:   answer("200", "Outcome lines.", lines(a.schema(OutcomeLine{}, "OutcomeLine"))),
		}, a.sendCommands)
}

// CommandLine is one line of the request.
type CommandLine struct {
	ID       string `json:"id" doc:"Of its own; the same one for a retry."`
	Type     string `json:"type" enum:"claim,redeem,rollback,remind,unremind"`
	Campaign string `json:"campaign,omitempty" doc:"Required but for generated codes."`
}

// TransformSchema: a line has further fields by its type.
func (CommandLine) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema { return open(s) }

// OutcomeLine is one line of the answer. Unlike an outcome it has no status while its result is unknown.
type OutcomeLine struct {
	OutcomeFields
	Status string `json:"status,omitempty" doc:"Absent: the result is unknown."`
}

// TransformSchema lets later versions add fields.
func (OutcomeLine) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema { return open(s) }

// sendCommands sends lines and waits for all their outcomes. Nothing is sent if there are too many of them.
func (a *API) sendCommands(w http.ResponseWriter, req *http.Request) {
	if problem := web.CheckMediaType(req, ndjson); problem != nil {
		problem.Write(w)
		return
	}
	body, problem := web.Body(w, req, nil, wire.MaxMessage)
	if problem != nil {
		problem.Write(w)
		return
	}
	var all [][]byte
	for _, line := range eventlog.Lines(body) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			all = append(all, line)
		}
	}
	if len(all) == 0 || len(all) > wire.MaxMessageLines {
		web.New(web.Code(wire.Invalid), "the body must have 1 to 1000 lines").At("body", "must have 1 to 1000 lines").Write(w)
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), commandWait)
	defer cancel()
	type numbered struct {
		n   int
		out wire.Outcome
	}
	answers, outcomes := make(chan numbered, len(all)), make([]wire.Outcome, len(all))
	waiting := 0
	for i, line := range all {
		cmd, refused := a.bulkLine(ctx, line)
		outcomes[i] = wire.Outcome{ID: cmd.ID, Campaign: cmd.Campaign, Message: "the outcome is not known; send the line again with its id"}
		if refused != nil {
			outcomes[i] = *refused
			continue
		}
		end := func(bool) {}
		if cmd.Code != "" {
			from, _ := ctx.Value(addressKey{}).(string)
			if end, problem = a.wrong.begin(principal(ctx), from); problem != nil {
				outcomes[i].Status, outcomes[i].Refusal, outcomes[i].Message = wire.StatusRefused, wire.Refusal(problem.Code), problem.Detail
				continue
			}
		}
		unknown := outcomes[i]
		waiting++
		err := a.Sender.Send(ctx, &cmd, principal(ctx).By(), func(out wire.Outcome, err error) {
			if err != nil {
				out = unknown
			}
			end(out.Refusal == wire.CodeNotFound)
			answers <- numbered{i, out}
		})
		if err != nil { // it was not sent: no effect
			waiting--
			end(false)
			outcomes[i].Status, outcomes[i].Refusal, outcomes[i].Message = wire.StatusRefused, wire.NotDurable, err.Error()
		}
	}
wait:
	for ; waiting > 0; waiting-- {
		select {
		case a := <-answers:
			outcomes[a.n] = a.out
		case <-ctx.Done(): // the rest is unknown; their answers find room in the channel
			break wait
		}
	}
	var out []byte
	for i := range outcomes {
		out = append(outcomes[i].AppendJSON(out), '\n')
	}
	w.Header().Set("Content-Type", ndjson)
	_, _ = w.Write(out) // the client may have closed the connection
}

// bulkLine reads a line, and refuses what the key may not send.
func (a *API) bulkLine(ctx context.Context, line []byte) (cmd wire.Command, refused *wire.Outcome) {
	refuse := func(r wire.Refusal, why string) *wire.Outcome {
		return &wire.Outcome{ID: cmd.ID, Campaign: cmd.Campaign, Status: wire.StatusRefused, Refusal: r, Message: why}
	}
	if err := wire.ParseCommand(line, wire.Defaults{}, &cmd); err != nil {
		return cmd, refuse(wire.Invalid, err.Error())
	}
	if !wire.ScopeProducer.Allows(cmd.Type) {
		return cmd, refuse(wire.Invalid, "type: "+cmd.Type.String()+" has a route of its own")
	}
	if problem := web.Check(principal(ctx), access.OperationOf(cmd.Type), cmd.Campaign); problem != nil {
		return cmd, refuse(forbidden, problem.Detail)
	}
	return cmd, nil
}
