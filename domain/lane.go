package domain

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"sort"
	"time"

	"github.com/seed-4a2410e3/scrip/domain/code"
)

// Lane is the state of all campaigns of one partition of the log. One goroutine owns it.
type Lane struct {
	lane, lanes int
	codec       *code.Codec
	hash        hasher
	keyCheck    [16]byte // stands in snapshots, so that another key is refused
	grace       time.Duration

	campaigns map[string]*campaign
	byNumber  map[uint32]*campaign
	clock     Instant // time of the newest command seen; never runs backwards
	reminders int     // pending, over all campaigns
}

// LaneOptions say which lane this is and with which key it makes codes.
type LaneOptions struct {
	Lane, Lanes int           // 0 <= Lane < Lanes
	Key         [32]byte      // the code key; the keyed hashes are derived from it
	Grace       time.Duration // reminders later than this are dropped; 0 = DefaultReminderGrace
}

// NewLane returns the empty lane, the state before the first event.
func NewLane(o LaneOptions) *Lane {
	if o.Grace == 0 {
		o.Grace = DefaultReminderGrace
	}
	mac := hmac.New(sha256.New, o.Key[:])
	mac.Write([]byte("scrip lane state hash 1"))
	var h hasher
	copy(h.key[:], mac.Sum(nil))
	return &Lane{
		lane: o.Lane, lanes: o.Lanes, codec: code.New(o.Key), hash: h, keyCheck: keyCheckOf(o.Key), grace: o.Grace,
		campaigns: make(map[string]*campaign), byNumber: make(map[uint32]*campaign),
	}
}

// Clock is the lane's time: that of the newest command or event seen.
func (l *Lane) Clock() Instant { return l.clock }

// Advance moves the lane's clock to at, unless it is there already, and returns its time. Time never runs backwards in
// a lane, whatever the clock of the machine that stamped the command did.
func (l *Lane) Advance(at Instant) Instant {
	l.clock = max(l.clock, at)
	return l.clock
}

// Campaigns is the number of campaigns of the lane.
func (l *Lane) Campaigns() int { return len(l.campaigns) }

// names lists the campaigns by name.
func (l *Lane) names() []string {
	names := make([]string, 0, len(l.campaigns))
	for name := range l.campaigns {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// nextNumber is the number a campaign created now gets, so that number mod L is its lane. False when 28 bits are used up.
func (l *Lane) nextNumber() (uint32, bool) {
	n := uint64(len(l.byNumber))*uint64(l.lanes) + uint64(l.lane)
	return uint32(n), n <= code.MaxCampaign
}

// add puts a new campaign in.
func (l *Lane) add(c *campaign) {
	l.campaigns[c.name] = c
	l.byNumber[c.number] = c
}

// coupon finds the claimed coupon a person named by its code, and if they gave one, its campaign. Malformed, unclaimed
// and forged codes are alike: not found.
func (l *Lane) coupon(campaignName, text string) (c *campaign, n uint32, ok bool) {
	if campaignName != "" {
		if c = l.campaigns[campaignName]; c == nil {
			return nil, 0, false
		}
		if c.imported != nil {
			i, found := c.imported.find(text)
			return c, i + 1, found && i < c.claimed()
		}
	}
	number, n, ok := l.codec.Decode(text)
	if !ok {
		return nil, 0, false
	}
	found := l.byNumber[number]
	if found == nil || c != nil && c != found || found.imported != nil || n > found.claimed() {
		return nil, 0, false
	}
	return found, n, true
}

// codeOf is the code of coupon n as people see it.
func (l *Lane) codeOf(c *campaign, n uint32) string {
	if c.imported != nil {
		return c.imported.at(n - 1)
	}
	var buf [code.MaxCodeLen]byte
	return string(l.codec.AppendCode(buf[:0], c.settings.Prefix, c.number, n))
}

// Decide answers one command at the given time (see [Lane.Advance]) and appends the events it makes to evs. The events
// are applied already when it returns. A refusal and a repeat make no events.
func (l *Lane) Decide(cmd *Command, at Instant, evs []Event) ([]Event, Outcome) {
	now := l.Advance(at)
	d := decision{lane: l, cmd: cmd, now: now, events: evs, first: len(evs)}
	d.out = Outcome{ID: cmd.ID, Campaign: cmd.Campaign}
	switch cmd.Type {
	case Claim:
		d.claim()
	case Redeem:
		d.redeem()
	case Rollback:
		d.rollback()
	case Void:
		d.void()
	case Extend:
		d.extend()
	case Remind:
		d.remind()
	case Unremind:
		d.unremind()
	case Expire:
		d.expire()
	case RemindDue:
		d.remindDue()
	case CreateCampaign:
		d.create()
	case UpdateCampaign:
		d.update()
	case PauseCampaign, ResumeCampaign, EndCampaign:
		d.turn()
	case ImportCodes:
		d.importCodes()
	default:
		d.refuse(Invalid, "unknown command")
	}
	return d.events, d.out
}

// decision is one command on its way through the checks.
type decision struct {
	lane   *Lane
	cmd    *Command
	now    Instant
	c      *campaign
	id     uint64
	events []Event
	first  int
	out    Outcome
}

// refuse answers no. The message is for people: it names what to do where there is something to do.
func (d *decision) refuse(r Refusal, format string, args ...any) {
	if len(args) > 0 {
		format = fmt.Sprintf(format, args...)
	}
	d.out = Outcome{ID: d.cmd.ID, Status: StatusRefused, Campaign: d.cmd.Campaign, Refusal: r, Message: format}
	if d.c != nil {
		d.out.Campaign = d.c.name
	}
}

// campaign finds the command's campaign or refuses.
func (d *decision) campaign() bool {
	if d.c = d.lane.campaigns[d.cmd.Campaign]; d.c == nil {
		d.refuse(CampaignNotFound, "there is no campaign %s", d.cmd.Campaign)
		return false
	}
	d.id = d.lane.hash.text(d.cmd.ID)
	return true
}

// coupon finds the command's coupon or refuses.
func (d *decision) coupon() (n uint32, ok bool) {
	c, n, ok := d.lane.coupon(d.cmd.Campaign, d.cmd.Code)
	if !ok {
		d.refuse(CodeNotFound, "there is no such code")
		return 0, false
	}
	d.c = c
	d.id = d.lane.hash.text(d.cmd.ID)
	return n, true
}

// reused refuses an id that stood on another command before.
func (d *decision) reused() {
	d.refuse(IdempotencyKeyReused, "the id %s stood on another command before; give each command an id of its own", d.cmd.ID)
}

// emit adds an event of the command and returns it to be filled in.
func (d *decision) emit(t EventType) *Event {
	d.events = append(d.events, Event{Type: t, Campaign: d.c.name, At: d.now, ID: d.cmd.ID})
	return &d.events[len(d.events)-1]
}

// apply folds the events made so far by this command, in order. It cannot fail: they were made from this very state.
func (d *decision) apply() {
	for i := d.first; i < len(d.events); i++ {
		if err := d.lane.Apply(&d.events[i]); err != nil {
			panic("domain: own event does not apply: " + err.Error())
		}
	}
	d.first = len(d.events)
}

// holds reports whether the command's customer, if it names one, holds coupon n.
func (d *decision) holds(n uint32) bool {
	return d.cmd.CustomerID == "" || d.lane.hash.customer(d.cmd.CustomerID) == d.c.claims.at(n-1).customer
}

// couponOutcome fills in what every answer about a coupon says.
func (d *decision) couponOutcome(status string, n uint32) {
	d.out.Status, d.out.Campaign, d.out.N = status, d.c.name, n
	d.out.Code = d.lane.codeOf(d.c, n)
	d.out.CustomerID = d.cmd.CustomerID
	if at := d.c.expires(n); at != Never {
		d.out.ExpiresAt = at
	}
}
