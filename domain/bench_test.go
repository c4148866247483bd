package domain

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// What a command line costs a lane: JSON lines in, event lines and answers out, in messages of 1,000 lines. Every
// benchmark prints the processor time a line; allocations are those of a whole message.
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
	var cpu cpuClock
	for b.Loop() {
		if k == len(l.messages) {
			b.StopTimer()
			cpu.stop()
			s, k = NewStep(l.lane()), 0
			runtime.GC() // not in the middle of what is measured
			cpu.start()
			b.StartTimer()
		}
		s.Reset()
		replies = s.Add(l.messages[k], start, replies[:0])
		s.Close()
		k++
	}
	cpu.stop()
	if !bytes.Contains(replies, []byte(l.want)) {
		b.Fatalf("answered %.300s", replies)
	}
	cpu.report(b, linesPerMessage)
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

// zipf spreads over c0, c1, …: the first gets most.
func zipf(campaigns uint64) func(int) string {
	z := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, campaigns-1)
	return func(int) string { return fmt.Sprint("c", z.Uint64()) }
}

func loads() map[string]func() load {
	const million = 1_000_000
	return map[string]func() load{
		"claim/hot": func() load {
			return load{func() *Lane { return benchLane(1, benchSettings(million), 0) }, messagesOf(million, "", claimOf(always("c0"))), `"status":"claimed"`}
		},
		"claim/subject": func() load {
			return load{func() *Lane { return benchLane(1, benchSettings(million), 0) }, messagesOf(million, "c0", claimOf(always(""))), `"status":"claimed"`}
		},
		"claim/zipf": func() load {
			return load{func() *Lane { return benchLane(10_000, benchSettings(million), 0) }, messagesOf(million, "", claimOf(zipf(10_000))), `"status":"claimed"`}
		},
		"soldout/hot": func() load {
			return load{func() *Lane { return benchLane(1, benchSettings(1), 1) }, messagesOf(100_000, "", claimOf(always("c0")))[1:], `"refusal":"sold_out"`}
		},
		"repeat/id": func() load {
			return load{func() *Lane { return benchLane(1, benchSettings(million), 200_000) }, messagesOf(200_000, "", claimOf(always("c0"))), `"repeat":true`}
		},
		"repeat/customer": func() load {
			return load{func() *Lane { return benchLane(1, benchSettings(million), 200_000) }, messagesOf(200_000, "", func(b *bytes.Buffer, i int) {
				fmt.Fprintf(b, `{"id":"%s","type":"claim","campaign":"c0","customer_id":"customer-%d"}`+"\n", benchID(i+million), i)
			}), `"repeat":true`}
		},
		"redeem/code": func() load {
			l := benchLane(1, benchSettings(million), 200_000)
			c := l.campaigns["c0"]
			return load{func() *Lane { return benchLane(1, benchSettings(million), 200_000) }, messagesOf(200_000, "", func(b *bytes.Buffer, i int) {
				fmt.Fprintf(b, `{"id":"%s","type":"redeem","code":"%s","order_id":"order-%d"}`+"\n", benchID(i+million), l.codeOf(c, uint32(i)+1), i)
			}), `"status":"redeemed"`}
		},
		"refused/unknown": func() load {
			return load{testLane, messagesOf(4*linesPerMessage, "", claimOf(func(i int) string { return fmt.Sprint("campaign-", i%500) })), `"refusal":"campaign_not_found"`}
		},
	}
}

func BenchmarkStep(b *testing.B) {
	for _, name := range []string{"claim/hot", "claim/subject", "claim/zipf", "soldout/hot", "repeat/id", "repeat/customer", "redeem/code", "refused/unknown"} {
		b.Run(name, func(b *testing.B) {
			l := loads()[name]()
			l.add(b)
		})
	}
}

// eventLog is the event lines of claims, as a restart reads them, and the lane before them.
func eventLog(claims int, campaign func(i int) string, campaigns int) (fresh func() *Lane, lines [][]byte) {
	fresh = func() *Lane { return benchLane(campaigns, benchSettings(uint32(claims)), 0) }
	s := NewStep(fresh())
	for _, m := range messagesOf(claims, "", claimOf(campaign)) {
		s.Reset()
		s.Add(m, start, nil)
		lines = append(lines, bytes.Split(bytes.TrimSpace(s.Events), []byte{'\n'})...)
	}
	return fresh, lines
}

func benchmarkFold(b *testing.B, fold func(l *Lane, line []byte) error) {
	const claims = 1_000_000
	for name, load := range map[string]func() (func() *Lane, [][]byte){
		"hot":  func() (func() *Lane, [][]byte) { return eventLog(claims, always("c0"), 1) },
		"zipf": func() (func() *Lane, [][]byte) { return eventLog(claims, zipf(10_000), 10_000) },
	} {
		b.Run(name, func(b *testing.B) {
			fresh, lines := load()
			b.ReportAllocs()
			var cpu cpuClock
			for b.Loop() {
				b.StopTimer()
				l := fresh()
				runtime.GC()
				b.StartTimer()
				cpu.start()
				for _, line := range lines {
					if err := fold(l, line); err != nil {
						b.Fatal(err)
					}
				}
				cpu.stop()
			}
			cpu.report(b, len(lines))
		})
	}
}

func BenchmarkParseAndApply(b *testing.B) {
	var ev wire.Event
	benchmarkFold(b, func(l *Lane, line []byte) error {
		if err := wire.ParseEvent(line, &ev); err != nil {
			return err
		}
		return l.Apply(&ev)
	})
}

func BenchmarkParseEvent(b *testing.B) {
	_, lines := eventLog(linesPerMessage, always("c0"), 1)
	var ev wire.Event
	b.ReportAllocs()
	var cpu cpuClock
	cpu.start()
	for b.Loop() {
		for _, line := range lines {
			if err := wire.ParseEvent(line, &ev); err != nil {
				b.Fatal(err)
			}
		}
	}
	cpu.stop()
	cpu.report(b, len(lines))
}

func BenchmarkFits(b *testing.B) {
	for _, name := range []string{"claim/hot", "claim/subject", "redeem/code"} {
		b.Run(name, func(b *testing.B) {
			l := loads()[name]()
			s, payload := NewStep(l.lane()), l.messages[0].Payload
			var cpu cpuClock
			cpu.start()
			for b.Loop() {
				if !s.Fits(payload, "") {
					b.Fatal("it does not fit an empty step")
				}
			}
			cpu.stop()
			cpu.report(b, linesPerMessage)
		})
	}
}

// BenchmarkFold is the tail of a restart: 1,000,000 claims in messages of 1,000.
func BenchmarkFold(b *testing.B) {
	for name, f := range map[string]func() (func() *Lane, [][]byte){
		"hot":  func() (func() *Lane, [][]byte) { return eventLog(1_000_000, always("c0"), 1) },
		"zipf": func() (func() *Lane, [][]byte) { return eventLog(1_000_000, zipf(10_000), 10_000) },
	} {
		b.Run(name, func(b *testing.B) {
			fresh, lines := f()
			var messages [][]byte
			for at := 0; at < len(lines); at += linesPerMessage {
				messages = append(messages, bytes.Join(lines[at:min(at+linesPerMessage, len(lines))], newline))
			}
			b.ReportAllocs()
			var cpu cpuClock
			for b.Loop() {
				b.StopTimer()
				l := fresh()
				runtime.GC()
				b.StartTimer()
				cpu.start()
				for _, m := range messages {
					if _, err := l.Fold(m); err != nil {
						b.Fatal(err)
					}
				}
				cpu.stop()
			}
			cpu.report(b, len(lines))
		})
	}
}
