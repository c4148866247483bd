package scheduler

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	reminders "github.com/seed-4a2410e3/scrip/domain/reminder"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/lanetest"
	"github.com/seed-4a2410e3/scrip/streams/scheduler/timers"
)

// model is the naive timers and planner: lists, looked through from end to end each time.
type model struct {
	campaigns []*modelCampaign
}

type modelCampaign struct {
	name           string
	opens, expires wire.Instant
	expiredThrough wire.Instant
	falls          []wire.Instant
	own            map[uint32]wire.Instant
	reminders      []modelReminder
	cancelled      []modelReminder
	expire         request
	requested      map[timers.Key][]request // in flight
	anchors        reminders.Anchors        // as requests saw them last
}

type modelReminder struct {
	r        uint64
	customer string
	kind     string
	before   time.Duration
	n        uint32
}

func (c *modelCampaign) due(r modelReminder) wire.Instant {
	anchor := c.opens
	if r.kind == wire.KindExpires {
		anchor = c.expires
		if own := c.own[r.n]; own != 0 {
			anchor = own
		}
	}
	if anchor == 0 {
		return wire.Never
	}
	return anchor - wire.Instant(r.before/time.Microsecond)
}

func (m *model) find(name string) *modelCampaign {
	for _, c := range m.campaigns {
		if c.name == name {
			return c
		}
	}
	c := &modelCampaign{name: name, own: map[uint32]wire.Instant{}, requested: map[timers.Key][]request{}}
	m.campaigns = append(m.campaigns, c)
	return c
}

func (m *model) fold(ev *wire.Event) (gone []timers.Fired) {
	c := m.find(ev.Campaign)
	switch ev.Type {
	case wire.CampaignCreated, wire.CampaignUpdated:
		c.opens, c.expires = ev.Settings.OpensAt, ev.Settings.ExpiresAt
	case wire.CouponClaimed, wire.CouponExtended:
		c.own[ev.N] = ev.ExpiresAt
		if ev.ExpiresAt != 0 {
			c.falls = append(c.falls, ev.ExpiresAt)
		}
	case wire.CouponsExpired:
		c.expiredThrough = max(c.expiredThrough, ev.Through)
	case wire.ReminderSet:
		customer := ev.CustomerID
		for _, r := range c.cancelled {
			if customer == "" && r.n == ev.N { // set again, for the coupon's holder
				customer = r.customer
			}
		}
		c.reminders = append(c.reminders, modelReminder{ev.R, customer, ev.Kind, ev.Before, ev.N})
	case wire.ReminderCancelled:
		for _, r := range c.reminders {
			if r.r == ev.R {
				c.cancelled = append(c.cancelled, r)
			}
		}
		c.reminders = slices.DeleteFunc(c.reminders, func(r modelReminder) bool { return r.r == ev.R })
	case wire.RemindersDue:
		c.reminders = slices.DeleteFunc(c.reminders, func(r modelReminder) bool {
			hit := r.kind == ev.Kind && c.due(r) == ev.DueAt && r.r >= ev.FromR && r.r <= ev.ThroughR &&
				(ev.Passed == 0 || ev.DueAt.Add(r.before) <= ev.Passed)
			if hit {
				gone = append(gone, timers.Fired{R: r.r, Customer: r.customer})
			}
			return hit
		})
		k, left := timers.Key{At: ev.DueAt, Kind: ev.Kind}, []uint64{}
		for _, r := range c.reminders {
			if r.kind == k.Kind && c.due(r) == k.At {
				left = append(left, r.r)
			}
		}
		for len(c.requested[k]) > 0 && settled(c.requested[k][0], left) {
			c.requested[k] = c.requested[k][1:]
		}
	}
	return gone
}

// requests is what the planner must request at now, reminders in chunks of so many.
func (m *model) requests(now wire.Instant, chunk int) (cmds []wire.Command) {
	for _, c := range m.campaigns {
		send := func(a request, due wire.Instant, cmd wire.Command) request {
			pause := time.Second << a.times
			if pause > 10*time.Second {
				pause = 10 * time.Second
			}
			if due > now-10_000_000 {
				pause = time.Second
			}
			a.times = min(a.times+1, 10)
			a.again = now + wire.Instant(pause/time.Microsecond)
			a.through, a.throughR = cmd.Through, cmd.ThroughR
			cmd.Campaign = c.name
			cmds = append(cmds, cmd)
			return a
		}
		var falls []wire.Instant
		for _, at := range append([]wire.Instant{c.expires}, c.falls...) {
			if at > c.expiredThrough && at <= now {
				falls = append(falls, at)
			}
		}
		a := c.expire
		c.expire = request{}
		if len(falls) > 0 {
			slices.Sort(falls)
			through := now
			if a.through >= falls[len(falls)-1] {
				through = a.through
			}
			switch {
			case a.through < falls[0]:
				c.expire = send(request{}, falls[0], wire.Command{Type: wire.Expire, Through: now})
			case a.again <= now:
				c.expire = send(a, falls[0], wire.Command{Type: wire.Expire, Through: through})
			default:
				c.expire = a
			}
		}
		due := map[timers.Key][]uint64{}
		for _, r := range c.reminders {
			if at := c.due(r); at <= now {
				due[timers.Key{At: at, Kind: r.kind}] = append(due[timers.Key{At: at, Kind: r.kind}], r.r)
			}
		}
		moved := c.anchors != reminders.Anchors{Opens: c.opens, Expires: c.expires}
		c.anchors = reminders.Anchors{Opens: c.opens, Expires: c.expires}
		if len(due) == 0 {
			c.requested = map[timers.Key][]request{}
		}
		remind := func(a request, k timers.Key, through uint64) request {
			return send(a, k.At, wire.Command{Type: wire.RemindDue, Kind: k.Kind, DueAt: k.At, ThroughR: through})
		}
		for k, requests := range c.requested {
			requests = slices.DeleteFunc(requests, func(a request) bool { return (moved || a.again <= now) && settled(a, due[k]) })
			for i, a := range requests {
				if a.again <= now {
					requests[i] = remind(a, k, a.throughR)
				}
			}
			c.requested[k] = requests
		}
		for k, rs := range due {
			var some []uint64
			for _, r := range rs {
				if n := len(c.requested[k]); n == 0 || r > c.requested[k][n-1].throughR {
					some = append(some, r)
				}
			}
			for part := range slices.Chunk(some, chunk) {
				c.requested[k] = append(c.requested[k], remind(request{}, k, part[len(part)-1]))
			}
		}
	}
	return cmds
}

// settled: of those numbers, rising, none is in the request.
func settled(a request, rs []uint64) bool { return len(rs) == 0 || rs[0] > a.throughR }

func (m *model) pending() (n int) {
	for _, c := range m.campaigns {
		n += len(c.reminders)
	}
	return n
}

func sortedLines(cmds []wire.Command) []string {
	lines := make([]string, len(cmds))
	for i := range cmds {
		lines[i] = string(cmds[i].AppendJSON(nil))
	}
	slices.Sort(lines)
	return lines
}

// Whatever happens in a lane, in whatever order, with requests lost, repeated and late and the scheduler restarted from a
// snapshot at any moment: it requests and fires exactly what the naive model does, and is never asleep when something is due.
func TestPlannerEqualsNaiveModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, m := lanetest.New(), &model{}
		p := newPlanner(timers.New(""))
		chunk := rapid.SampledFrom([]int{1, 2, 3, 1000}).Draw(t, "chunk")
		p.chunk, p.most = chunk, 1<<40
		now := wire.Instant(1_800_000_000_000_000)
		campaigns := []string{"a", "b", "c"}
		customers := []string{"x", "y", "z"}
		durations := []time.Duration{time.Microsecond, 300 * time.Millisecond, time.Second, 1500 * time.Millisecond, time.Minute, 2 * time.Minute, time.Hour}
		var onTheWay []wire.Command

		campaign := func() string { return rapid.SampledFrom(campaigns).Draw(t, "campaign") }
		customer := func() string { return rapid.SampledFrom(customers).Draw(t, "customer") }
		duration := func() time.Duration { return rapid.SampledFrom(durations).Draw(t, "duration") }
		ahead := func() string { return now.Add(duration()).String() }
		fold := func(events []wire.Event) {
			for i := range events {
				ev := &events[i]
				gone, err := p.timers.Fold(ev)
				if err != nil {
					t.Fatalf("fold: %v", err)
				}
				p.folded(ev)
				want := m.fold(ev)
				if len(gone) != len(want) || len(want) > 0 && !reflect.DeepEqual(gone, want) {
					t.Fatalf("%s: gone %v, the model has %v", ev.AppendJSON(nil), gone, want)
				}
				if ev.Type == wire.RemindersDue && uint64(len(gone)) != ev.Fired+ev.Dropped {
					t.Fatalf("%s: %d gone", ev.AppendJSON(nil), len(gone))
				}
			}
		}
		do := func(format string, args ...any) { fold(s.Do(t, now, format, args...)) }
		codes := []string{}

		t.Repeat(map[string]func(*rapid.T){
			"create": func(*rapid.T) {
				extra := ""
				switch rapid.IntRange(0, 3).Draw(t, "shape") {
				case 0:
					extra = fmt.Sprintf(`,"valid_for":%q`, duration().Truncate(time.Second)+time.Second)
				case 1:
					extra = fmt.Sprintf(`,"expires_at":%q`, now.Add(duration()+time.Hour))
				case 2:
					extra = fmt.Sprintf(`,"opens_at":%q`, ahead())
				}
				do(`"type":"create_campaign","campaign":%q,"codes":100,"per_customer":0%s`, campaign(), extra)
			},
			"update": func(*rapid.T) {
				field := rapid.SampledFrom([]string{"opens_at", "expires_at"}).Draw(t, "field")
				value := fmt.Sprintf("%q", ahead())
				if rapid.IntRange(0, 4).Draw(t, "null") == 0 {
					value = "null"
				}
				do(`"type":"update_campaign","campaign":%q,%q:%s`, campaign(), field, value)
			},
			"claim": func(*rapid.T) {
				events := s.Do(t, now, `"type":"claim","campaign":%q,"customer_id":%q`, campaign(), customer())
				for i := range events {
					if events[i].Type == wire.CouponClaimed {
						codes = append(codes, events[i].Code)
					}
				}
				fold(events)
			},
			"coupon": func(*rapid.T) {
				if len(codes) == 0 {
					return
				}
				c := rapid.SampledFrom(codes).Draw(t, "code")
				switch rapid.IntRange(0, 4).Draw(t, "what") {
				case 0:
					do(`"type":"redeem","code":%q,"order_id":"o"`, c)
				case 1:
					do(`"type":"rollback","code":%q,"order_id":"o"`, c)
				case 2:
					do(`"type":"void","code":%q,"reason":"r"`, c)
				default:
					do(`"type":"extend","code":%q,"expires_at":%q`, c, ahead())
				}
			},
			"end": func(*rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "really") == 0 {
					do(`"type":"end_campaign","campaign":%q`, campaign())
				}
			},
			"remind": func(*rapid.T) {
				what := rapid.SampledFrom([]string{"remind", "remind", "unremind"}).Draw(t, "what")
				kind := rapid.SampledFrom([]string{"opens", "expires"}).Draw(t, "kind")
				do(`"type":%q,"campaign":%q,"customer_id":%q,"kind":%q,"before":%q`, what, campaign(), customer(), kind, duration())
			},
			"request": func(*rapid.T) {
				got := p.requests(now)
				if g, w := sortedLines(got), sortedLines(m.requests(now, chunk)); !slices.Equal(g, w) {
					t.Fatalf("requests at %s\n got %v\nwant %v", now, g, w)
				}
				if p.wake() <= now {
					t.Fatalf("wakes at %s, which is not after %s", p.wake(), now)
				}
				onTheWay = append(onTheWay, got...)
			},
			"answer": func(*rapid.T) {
				for len(onTheWay) > 0 && rapid.IntRange(0, 3).Draw(t, "more") > 0 {
					i := rapid.IntRange(0, len(onTheWay)-1).Draw(t, "which")
					cmd := onTheWay[i]
					onTheWay = slices.Delete(onTheWay, i, i+1)
					if rapid.IntRange(0, 4).Draw(t, "lost") > 0 {
						cmd.ID = "s"
						fold(s.Events(t, now, &cmd))
					}
				}
			},
			"sleep": func(*rapid.T) {
				until := now.Add(duration())
				if rapid.Bool().Draw(t, "to the instant") && p.wake() > now && p.wake() < until {
					until = p.wake()
				}
				if wake := p.wake(); wake > until {
					// Nothing may be due while the planner sleeps.
					for _, c := range m.campaigns {
						copied := *c
						copied.requested = map[timers.Key][]request{}
						for k, requests := range c.requested {
							copied.requested[k] = slices.Clone(requests)
						}
						if due := (&model{[]*modelCampaign{&copied}}).requests(until, chunk); len(due) > 0 {
							t.Fatalf("asleep until %s, but at %s the model requests %v", wake, until, sortedLines(due))
						}
					}
				}
				now = until
			},
			"restart": func(*rapid.T) {
				var one, two bytes.Buffer
				if err := p.timers.Write(&one); err != nil {
					t.Fatalf("encode: %v", err)
				}
				b, err := timers.Read("", bytes.NewReader(one.Bytes()))
				if err != nil {
					t.Fatalf("decode: %v", err)
				}
				if err := b.Write(&two); err != nil || !bytes.Equal(one.Bytes(), two.Bytes()) {
					t.Fatalf("timers read back is another one (%v)", err)
				}
				if b.Instants() != p.timers.Instants() {
					t.Fatalf("%d instants to come before, %d after", p.timers.Instants(), b.Instants())
				}
				p = newPlanner(b)
				p.chunk, p.most = chunk, 1<<40
				for _, c := range m.campaigns {
					c.expire, c.requested = request{}, map[timers.Key][]request{}
				}
				onTheWay = nil
			},
			"": func(*rapid.T) {
				if got, want := p.timers.Reminders(), m.pending(); got != want {
					t.Fatalf("%d reminders pending, the model has %d", got, want)
				}
			},
		})
	})
}
