package api

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// hasty gives commands a tenth of a second: what it is, is not what the test is about.
type hasty struct{ Sender }

func (h hasty) Send(ctx context.Context, cmd *wire.Command, by string, fn func(wire.Outcome, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	return h.Sender.Send(ctx, cmd, by, fn)
}

// TestACommandThatCannotBeSentHasNoEffect: while NATS is away the answer comes from the batcher, which has the fact that nothing
// was sent, and not from a timer beside it.
func TestACommandThatCannotBeSentHasNoEffect(t *testing.T) {
	nats := streamtest.Start(t)
	lines := command.New(nats.Conn(t), command.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- lines.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	a := &API{Options: Options{Sender: hasty{NewLanes(lines, topology.Log{Lanes: 1}, code.New([32]byte{}))}}}
	nats.Shutdown()
	var effects []web.Effect
	for range 3 { // the first may be sent while the batcher has not noticed
		var p *web.Problem
		if _, err := a.do(t.Context(), wire.Command{Type: wire.Claim, Campaign: "summer", CustomerID: "ann"}, Change{}); !errors.As(err, &p) || p.Status != 503 {
			t.Fatalf("%v", err)
		}
		if p.Effect == web.NoEffect {
			return
		}
		effects = append(effects, p.Effect)
	}
	t.Errorf("the effects are %v, want %s", effects, web.NoEffect)
}
