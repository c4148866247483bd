package domain

import (
	"bytes"
	"fmt"
	"testing"
)

// The claim path: JSON lines in, event lines and answers out, 500 lines a message as the SDK sends them.

func claimMessages(campaign string, from, lines, perMessage int) (messages [][]byte) {
	for at := from; at < from+lines; at += perMessage {
		var b bytes.Buffer
		for i := at; i < at+perMessage; i++ {
			fmt.Fprintf(&b, `{"id":"01936f00-0000-7000-8000-%012d","type":"claim","campaign":"%s","customer_id":"customer-%d"}`+"\n", i, campaign, i)
		}
		messages = append(messages, b.Bytes())
	}
	return messages
}

func benchmarkClaims(b *testing.B, codes uint32, messages [][]byte, want string) {
	const perMessage = 500
	var replies []byte
	lines := 0
	b.ReportAllocs()
	var s *Step
	k := len(messages)
	for b.Loop() {
		if k == len(messages) {
			b.StopTimer()
			s = stepOn(b, codes)
			k = 0
			b.StartTimer()
		}
		s.Reset()
		replies = s.Add(Message{Scope: ScopeTrusted, Payload: messages[k]}, start, replies[:0])
		s.Close()
		k++
		lines += perMessage
	}
	if !bytes.Contains(replies, []byte(want)) {
		b.Fatalf("answered %.200s", replies)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(lines), "ns/line")
}

func BenchmarkClaim(b *testing.B) {
	benchmarkClaims(b, 1_000_000, claimMessages("s", 0, 1_000_000, 500), `"status":"claimed"`)
}

func BenchmarkSoldOut(b *testing.B) {
	benchmarkClaims(b, 1, claimMessages("s", 0, 100_000, 500), `"refusal":"sold_out"`)
}

func BenchmarkRepeat(b *testing.B) {
	m := claimMessages("s", 0, 500, 500)[0]
	messages := make([][]byte, 2000)
	for i := range messages {
		messages[i] = m
	}
	benchmarkClaims(b, 1000, messages, `"repeat":true`)
}

// BenchmarkRefusedInManyCampaigns has each line in another campaign, as under a spread load.
func BenchmarkRefusedInManyCampaigns(b *testing.B) {
	var m bytes.Buffer
	for i := range 500 {
		fmt.Fprintf(&m, `{"id":"01936f00-0000-7000-8000-%012d","type":"claim","campaign":"campaign-%d","customer_id":"customer-%d"}`+"\n", i, i, i)
	}
	benchmarkClaims(b, 1, [][]byte{m.Bytes(), m.Bytes(), m.Bytes(), m.Bytes()}, `"refusal":"campaign_not_found"`)
}

func BenchmarkApplyClaims(b *testing.B) {
	s := stepOn(b, 100_000)
	var log []byte
	for _, m := range claimMessages("s", 0, 100_000, 500) {
		s.Reset()
		s.Add(Message{Scope: ScopeTrusted, Payload: m}, start, nil)
		log = append(log, s.Events...)
	}
	create := Command{Type: CreateCampaign, ID: "create", Campaign: "s", Patch: PatchOf(DefaultSettings(100_000))}
	b.ReportAllocs()
	for b.Loop() {
		l := testLane()
		l.Decide(&create, start, nil)
		for rest := log; len(rest) > 0; {
			var line []byte
			line, rest, _ = bytes.Cut(rest, []byte{'\n'})
			var ev Event
			if err := ParseEvent(line, &ev); err != nil {
				b.Fatal(err)
			}
			if err := l.Apply(&ev); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100_000, "ns/line")
}
