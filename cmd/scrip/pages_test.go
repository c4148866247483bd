package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/projections/projtest"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// TestShortPages: the command line goes on over pages that are short or empty until its limit is reached or the list ends. The flags
// for the next page have the time that a relative one was.
func TestShortPages(t *testing.T) {
	p := serve(t, projtest.Dir(t))
	js, err := jetstream.New(p.nats().Conn(), jetstream.WithPublishAsyncMaxPending(1<<20))
	streamtest.Must(t, err)
	at := started.UTC().Format(time.RFC3339)
	for n := range 9000 { // a page reads 4,000
		actor := "ann"
		if n < 3 {
			actor = "zoe"
		}
		_, err := js.PublishAsync(topology.AuditSubject, fmt.Appendf(nil, `{"at":%q,"kind":"lookup","actor":%q,"action":"coupons","about":"x %d"}`, at, actor, n))
		streamtest.Must(t, err)
	}
	<-js.PublishAsyncComplete()
	for limit, want := range map[string]string{"100": "x 2 x 1 x 0 <nil>", "2": "x 2 x 1"} {
		answer := p.must("audit", "--actor", "zoe", "--limit", limit)
		var about []string
		for _, item := range answer["items"].([]any) {
			about = append(about, fmt.Sprint(item.(map[string]any)["about"]))
		}
		if got := strings.Join(about, " "); limit == "100" && got+" "+fmt.Sprint(answer["next"]) != want || limit == "2" && (got != want || answer["next"] == nil) {
			t.Errorf("--limit %s: %v, want %s", limit, answer, want)
		}
	}
	first := p.run("audit", "--since", "-1h", "--limit", "1")
	_, flags, more := strings.Cut(first.err, "there is more: ")
	if !more || !strings.HasPrefix(flags, "--since 20") {
		t.Fatalf("%+v", first)
	}
	if second := p.run(append([]string{"audit", "--limit", "1"}, strings.Fields(flags)...)...); second.code != cli.ExitDone || second.out == first.out {
		t.Errorf("%+v, then %+v", first, second)
	}
}
