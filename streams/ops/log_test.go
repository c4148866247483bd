package ops

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/audit"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// Dead letters of a sender: only its own are removed, also those after the first thousand, and a letter that cannot be read ends no list.
func TestSenderLetters(t *testing.T) {
	r := newJobRig(t)
	stream, err := r.js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: topology.PushDeadStream, Subjects: []string{topology.PushDeadSubjects + ">"}})
	if err != nil {
		t.Fatal(err)
	}
	put := func(sender string, n int, tries string) uint64 {
		m := nats.NewMsg(fmt.Sprintf("%s%s.0.%d.1.0", topology.PushDeadSubjects, sender, n))
		m.Header.Set("Scrip-Push-Tries", tries)
		ack, err := r.js.PublishMsg(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		return ack.Sequence
	}
	o := &Ops{JetStream: r.js, Audit: audit.Open(r.js, nil), Cursors: Cursors{Log: "log"}}
	do := func(action, request string) (any, error) {
		t.Helper()
		var fields Fields
		if err := json.Unmarshal([]byte(request), &fields); err != nil {
			t.Fatal(err)
		}
		return Named(action).Do(t.Context(), o, ann, fields)
	}
	discarded := func(request string, want uint64) {
		t.Helper()
		count := func() uint64 {
			info, err := stream.Info(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return info.State.Msgs
		}
		before := count()
		answer, err := do("sender.discard", request)
		if err != nil {
			t.Fatalf("%s: %v", request, err)
		}
		if gone := before - count(); uint64(answer.(LettersDone).Discarded) != want || gone != want {
			t.Errorf("%s: %+v, %d removed, want %d", request, answer, gone, want)
		}
	}

	put("webhook-a", 1, "3")
	other := put("mail", 1, "3")
	put("mobile", 1, "unreadable")
	var last uint64
	for n := range discardMost + 1 {
		last = put("mobile", n+2, "3")
	}
	for _, sender := range []string{"*", ">", "mail.0", "webhook-a", ""} {
		for _, action := range []string{"sender.deadletters", "sender.discard"} {
			request := fmt.Sprintf(`{"sender":%q,"all":true}`, sender)
			if action == "sender.deadletters" {
				request = fmt.Sprintf(`{"sender":%q}`, sender)
			}
			if _, err := do(action, request); err == nil || RefusalOf(err).Code != wire.Invalid {
				t.Errorf("%s %s: %v, want it refused as invalid", action, request, err)
			}
		}
	}

	seen, after := 0, ""
	for {
		answer, err := do("sender.deadletters", fmt.Sprintf(`{"sender":"mobile","limit":500,"after":%q}`, after))
		if err != nil {
			t.Fatal(err)
		}
		page := answer.(Page[SenderLetter])
		seen += len(page.Items)
		if after = page.Next; after == "" {
			break
		}
	}
	if seen != discardMost+2 {
		t.Errorf("the list has %d letters, want %d", seen, discardMost+2)
	}
	discarded(fmt.Sprintf(`{"sender":"mobile","ids":[%d,%d,%d]}`, last, last, other), 1)
	discarded(`{"sender":"mobile","ids":[0]}`, 0)
	discarded(`{"sender":"mail","all":true}`, 1)
}
