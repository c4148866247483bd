package domain

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// What a command line costs a lane: JSON lines in, event lines and answers out, in messages of 1,000 lines. Every
// benchmark prints the time a line; allocations are those of a whole message.
const linesPerMessage = 1000

// load is command messages, and the lane they are for.
type load struct {
	lane     func() *Lane
	messages []Message
	want     string // is in the last answer
}

// add runs the load through a step, one message a step, on a fresh lane whenever it has been through.
func (l *load) add(b *testing.B) {
	b.Helper()
	var replies []byte
	var s *Step
	k := len(l.messages)
	b.ReportAllocs()
	for b.Loop() {
		if k == len(l.messages) {
			b.StopTimer()
			s, k = NewStep(l.lane()), 0
			runtime.GC() // not in the middle of what is measured
			b.StartTimer()
		}
		s.Reset()
		replies = s.Add(l.messages[k], start, replies[:0])
		s.Close()
		k++
	}
	if !bytes.Contains(replies, []byte(l.want)) {
		b.Fatalf("answered %.300s", replies)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/linesPerMessage, "ns/line")
}

// messagesOf makes messages of the lines that f writes for 0, 1, 2, …
func messagesOf(lines int, campaign string, f func(b *bytes.Buffer, i int)) (messages []Message) {
	for at := 0; at < lines; at += linesPerMessage {
		var b bytes.Buffer
		for i := at; i < at+linesPerMessage; i++ {
			f(&b, i)
		}
		messages = append(messages, Message{Scope: wire.ScopeTrusted, Campaign: campaign, Payload: b.Bytes()})
	}
	return messages
}

func benchID(i int) string { return fmt.Sprintf("01936f00-0000-7000-8000-%012d", i) }

// benchLane has campaigns c0, c1, … of so many codes, of which the first claims are claimed by customer-0, customer-1, ….
func benchLane(campaigns int, settings wire.Settings, claims int) *Lane {
	l := testLane()
	var evs []wire.Event
	for i := range campaigns {
		create := wire.Command{Type: wire.CreateCampaign, ID: "create", Campaign: fmt.Sprint("c", i), Patch: wire.PatchOf(settings)}
		evs, _ = l.Decide(&create, start, evs[:0])
	}
	for i := range claims {
		claim := wire.Command{Type: wire.Claim, ID: benchID(i), Campaign: "c0", CustomerID: fmt.Sprint("customer-", i)}
		evs, _ = l.Decide(&claim, start, evs[:0])
	}
	return l
}

func benchSettings(codes uint32) wire.Settings {
	s := wire.DefaultSettings(codes)
	s.ExpiresAt = start + 30*day
	s.Category = "food"
	return s
}

func claimOf(campaign func(i int) string) func(b *bytes.Buffer, i int) {
	return func(b *bytes.Buffer, i int) {
		fmt.Fprintf(b, `{"id":"%s","type":"claim",`, benchID(i))
		if name := campaign(i); name != "" {
			fmt.Fprintf(b, `"campaign":"%s",`, name)
		}
		fmt.Fprintf(b, `"customer_id":"customer-%d"}`+"\n", i)
	}
}

func always(name string) func(int) string { return func(int) string { return name } }

func BenchmarkStep(b *testing.B) {
	const million, claimed = 1_000_000, 200_000
	fresh := func(campaigns, claims int) func() *Lane {
		return func() *Lane { return benchLane(campaigns, benchSettings(million), claims) }
	}
	for _, bench := range []struct {
		name string
		load func() load
	}{
		{"claim/hot", func() load {
			return load{fresh(1, 0), messagesOf(million, "", claimOf(always("c0"))), `"status":"claimed"`}
		}},
		{"soldout/hot", func() load {
			return load{func() *Lane { return benchLane(1, benchSettings(1), 1) }, messagesOf(100_000, "", claimOf(always("c0")))[1:], `"refusal":"sold_out"`}
		}},
		{"repeat/id", func() load {
			return load{fresh(1, claimed), messagesOf(claimed, "", claimOf(always("c0"))), `"repeat":true`}
		}},
		{"redeem/code", func() load {
			l := fresh(1, claimed)()
			c := l.campaigns["c0"]
			return load{fresh(1, claimed), messagesOf(claimed, "", func(b *bytes.Buffer, i int) {
				fmt.Fprintf(b, `{"id":"%s","type":"redeem","code":"%s","order_id":"order-%d"}`+"\n", benchID(i+million), l.codeOf(c, uint32(i)+1), i)
			}), `"status":"redeemed"`}
		}},
		{"refused/unknown", func() load {
			return load{testLane, messagesOf(4*linesPerMessage, "", claimOf(func(i int) string { return fmt.Sprint("campaign-", i%500) })), `"refusal":"campaign_not_found"`}
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			l := bench.load()
			l.add(b)
		})
	}
}

// BenchmarkFold is the tail of a restart: a million claims in messages of a thousand.
func BenchmarkFold(b *testing.B) {
	const claims = 1_000_000
	fresh := func() *Lane { return benchLane(1, benchSettings(claims), 0) }
	s := NewStep(fresh())
	var messages [][]byte
	for _, m := range messagesOf(claims, "", claimOf(always("c0"))) {
		s.Reset()
		s.Add(m, start, nil)
		messages = append(messages, s.Events)
	}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		l := fresh()
		runtime.GC()
		b.StartTimer()
		for _, m := range messages {
			if _, err := l.Fold(m); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/claims, "ns/line")
}
