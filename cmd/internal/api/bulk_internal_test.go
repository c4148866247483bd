package api

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/cmd/internal/web"
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/access"
	"github.com/seed-4a2410e3/scrip/streams/command"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestLinesWithoutOutcome: when the server stops, lines that it never sent are refused, which means that they had no effect. The
// result of those that it sent is unknown.
func TestLinesWithoutOutcome(t *testing.T) {
	for name, sent := range map[string]bool{"sent": true, "never sent": false} {
		t.Run(name, func(t *testing.T) {
			nats := streamtest.Start(t)
			owner := streamtest.StartOwner(t, nats.Conn(t), topology.Spec{Lanes: 1})
			owner.SetFault(func(int, []wire.Command) int { return 0 })
			nc := nats.Conn(t)
			lanes := command.New(nc, command.Options{Count: owner.Log.Lanes, Codec: code.New([32]byte{})})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			ended := make(chan error, 1)
			run := func() { ended <- lanes.Run(ctx) }
			if sent {
				go run()
			}

			a := &API{Options: Options{Gate: &web.Gate{}, Lanes: lanes}}
			body := `{"id":"a","type":"claim","campaign":"summer","customer_id":"ann"}` + "\n" + `{"id":"b","type":"claim","campaign":"summer","customer_id":"bob"}`
			req := httptest.NewRequest("POST", "/v1/commands", strings.NewReader(body))
			req.Header.Set("Content-Type", ndjson)
			req = req.WithContext(a.with(httptest.NewRecorder(), req, access.Principal{ID: "shop", Role: access.Producer}))
			answer, answered := httptest.NewRecorder(), make(chan struct{})
			go func() {
				defer close(answered)
				a.sendCommands(answer, req, nil)
			}()
			streamtest.Eventually(t, "both lines are added", func() bool {
				_, arrived := owner.Seen()
				return lanes.Counters().Lines == 2 && (!sent || arrived >= 2)
			})
			if !sent {
				nats.Shutdown()
				streamtest.Eventually(t, "nothing can be sent any more", func() bool { return !nc.IsConnected() })
				go run()
			}
			stop()
			<-answered
			if err := <-ended; err != nil {
				t.Error(err)
			}
			got := strings.Split(strings.TrimSpace(answer.Body.String()), "\n")
			if len(got) != 2 {
				t.Fatalf("answered %q", got)
			}
			for i, id := range []string{"a", "b"} {
				out, err := wire.ParseOutcome([]byte(got[i]))
				switch {
				case out.ID != id || out.Campaign != "summer":
					t.Errorf("answered %s, %v; want the outcome of %s", got[i], err, id)
				case sent && out.Status != "", !sent && (err != nil || out.Refusal != wire.NotDurable):
					t.Errorf("answered %s, %v", got[i], err)
				}
			}
		})
	}
}
