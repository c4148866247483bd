package crash

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/e2e"
	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestOneMessageStopsNothingForEver: a message that a newer version sealed stops its lane, until an operator has it skipped with
// --skip-message. The coupons are the same before and after, and the next start needs no flag.
func TestOneMessageStopsNothingForEver(t *testing.T) {
	t.Parallel()
	serve := func(data string, args ...string) *e2e.Server {
		s := e2e.NewMember(t, append([]string{"--nats-listen", "127.0.0.1:0", "--lanes", "1", "--roles", "lanes,scheduler,api"}, args...)...)
		if data != "" {
			s.Data = data
		}
		s.Launch()
		return s
	}
	codes := map[string]string{}
	claims := func(s *e2e.Server) {
		t.Helper()
		c, err := client.Connect(s.Desc.NATSURL)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for _, customer := range []string{"ann", "bob", "cid"} {
			out, err := c.Claim(t.Context(), "c", customer)
			if err != nil || out.Refused() || codes[customer] != "" && codes[customer] != out.Code {
				t.Fatalf("claim of %s, who has %q: %+v, %v", customer, codes[customer], out, err)
			}
			codes[customer] = out.Code
		}
	}
	s := serve("")
	s.Ready()
	c := s.Client()
	if out, err := c.CreateCampaign(t.Context(), "c", wire.DefaultSettings(100)); err != nil || out.Refused() {
		t.Fatal(out, err)
	}
	js, err := jetstream.New(c.Conn())
	if err != nil {
		t.Fatal(err)
	}
	claims(s)

	key, err := code.ParseKey(strings.TrimPrefix(e2e.MemberKey, "SCRIP_CODE_KEY="))
	if err != nil {
		t.Fatal(err)
	}
	log, found, err := topology.Inspect(t.Context(), js)
	if err != nil || !found {
		t.Fatalf("no log: %v", err)
	}
	log = log.WithKey(key)
	bounds, err := eventlog.Events(js, 0).Bounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	bad := bounds.Last + 1
	newer := eventlog.Events(nil, 0).In(log).Sealer().Encode(eventlog.Header{Owner: "a newer scrip"}, bad, nil)
	newer.Set(topology.HeaderFormat, "99")
	newer.Set(topology.HeaderSeal, log.Seal.Message(topology.EvtStream(0), bad, newer, nil))
	// The owner finds out when it writes.
	void := []byte(`{"id":"x","type":"void","campaign":"c","code":"x","reason":"x"}`)
	for _, msg := range []*nats.Msg{{Subject: topology.Evt(0), Header: newer}, {Subject: topology.LaneCmd(0), Data: void}} {
		if _, err := js.PublishMsg(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
	}
	s.Logs("--skip-message 0=SEQ")
	s.Kill()

	refused := serve(s.Data, "--skip-message", fmt.Sprintf("0=%d", bounds.Last))
	if exit := refused.Wait(); exit != 1 || !strings.Contains(refused.Output(), "carries scrip's seal and can be read") {
		t.Errorf("skipping a message that can be read: exit %d", exit)
	}
	skipping := serve(s.Data, "--skip-message", fmt.Sprintf("0=%d", bad))
	skipping.Ready()
	claims(skipping)
	skipping.Stop()
	again := serve(s.Data) // the skip list is stored
	again.Ready()
	claims(again)
}
