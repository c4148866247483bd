package server

import (
	"context"
	"encoding/json"

	"github.com/nats-io/nats.go"

	"github.com/seed-4a2410e3/scrip/streams/replyto"
)

// RollCall is the subject on which every server of a log says how it stands to whoever asks, with a [Card] each: so that
// one look from anywhere shows all of them, and what each lane's scheduler has before it.
const RollCall = "scrip.rollcall"

// Card is a server's answer to a RollCall.
type Card struct {
	Server  string `json:"server"` // as in the leases
	Version string `json:"version,omitempty"`
	Roles   []Role `json:"roles"`
	Readiness
}

// startRoll answers roll calls. Where the NATS account may not subscribe to them, `scrip status` knows less; nothing
// else does.
func (s *server) startRoll(ctx context.Context) error {
	nc, err := s.connect(ctx, "rollcall")
	if err != nil {
		return err
	}
	refused := replyto.Refused("rollcall")
	if err := s.metrics.registry.Register(refused); err != nil {
		return err
	}
	_, err = nc.Subscribe(RollCall, func(m *nats.Msg) {
		if !replyto.May(m.Reply) {
			if m.Reply != "" {
				refused.Inc()
			}
			return
		}
		card, err := json.Marshal(Card{Server: s.id, Version: s.opts.Version, Roles: s.opts.Roles, Readiness: s.health.ask()})
		if err == nil {
			err = m.Respond(card)
		}
		if err != nil {
			s.log.Warn("roll call not answered", "err", err)
		}
	})
	return err
}
