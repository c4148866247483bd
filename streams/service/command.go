package service

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/google/uuid"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/batcher"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// command parses a request and sends its line to the lane. An invalid request is answered at once: a refusal has no effect
// and needs no record in the log.
func (s *Service) command(req *request, campaign string, data []byte) {
	var cmd wire.Command
	def := wire.Defaults{Type: req.endpoint.command, Campaign: campaign, NoID: true}
	if req.endpoint.named && !wire.ValidCampaignName(campaign) {
		req.refuse(&wire.Outcome{Refusal: wire.Invalid,
			Message: fmt.Sprintf("campaign: the subject's last token must be 1 to %d of A-Z a-z 0-9 _ -", wire.MaxCampaignName)})
		return
	}
	if err := wire.ParseCommand(data, def, &cmd); err != nil {
		req.refuse(&wire.Outcome{ID: cmd.ID, Campaign: cmd.Campaign, Refusal: wire.Invalid, Message: err.Error()})
		return
	}
	if cmd.ID == "" {
		cmd.ID = uuid.Must(uuid.NewV7()).String() // fails only without a source of randomness
	}
	req.id = cmd.ID
	lane, ok := s.laneOf(cmd.Campaign, cmd.Code)
	if !ok {
		req.refuse(&wire.Outcome{ID: cmd.ID, Refusal: wire.CodeNotFound, Message: noCampaign})
		return
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	line := cmd.AppendJSON((*buf)[:0])
	*buf = line[:0]
	if len(line) > wire.MaxLine {
		// Type, id and campaign were added to a request that was just short enough.
		req.refuse(&wire.Outcome{ID: cmd.ID, Campaign: cmd.Campaign, Refusal: wire.Invalid,
			Message: fmt.Sprintf("the command has %d bytes as a line of the log, at most %d are allowed; split it", len(line), wire.MaxLine)})
		return
	}
	s.open.Add(1)
	if _, err := s.lines.TrySend(lane, batcher.Line{ID: cmd.ID, JSON: line, Deadline: req.deadline, To: req}); err != nil {
		req.Answer(nil, err)
	}
}

// noCampaign is the message for a code without a campaign.
const noCampaign = "no generated code has this form; an imported code needs its campaign in the field campaign"

// laneOf returns the lane of a command or query: by the campaign's name, else by the campaign number in a generated code.
// That number may belong to no campaign; the lane checks it.
func (s *Service) laneOf(campaign, code string) (int, bool) {
	if campaign != "" {
		return topology.LaneOf(campaign, s.log.Lanes), true
	}
	number, _, ok := s.codec.Decode(code)
	return int(number) % s.log.Lanes, ok
}

// Answer is called with the outcome line of the request's command.
func (r *request) Answer(line []byte, err error) {
	defer r.service.open.Add(-1)
	switch {
	case err != nil:
		r.fail(err)
	case bytes.Contains(line, []byte(`"status":"refused"`)):
		r.respond(line, refused)
	default:
		r.respond(line, done)
	}
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 512); return &b }}
