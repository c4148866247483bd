package tables

import (
	"fmt"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/pgcopy"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// fold is the state of folding lines in memory: what was loaded, and what must be written.
type fold struct {
	lane      int
	schema    string
	campaigns map[string]*campaign
	sorted    []*campaign // once folded

	segment      int32    // of claims
	unlisted     []int32  // see Batch
	acts         bool     // some line changes a coupon, so claims of this batch are indexed
	claims       int      // new rows of coupons
	chunk        []coupon // not used yet
	redemptions  []*redemption
	open         map[orderKey]*redemption // those of redemptions that are not rolled back
	rollbacks    []rollback
	couponEvents []couponEvent
	changes      []campaignEvent
	reminders    []*reminderRound
	refusals     map[refusalKey]int64
	attributes   map[string][]pair // of claims, by their JSON
	deadLetters  []deadLetter
	parked       []Parked
}

func newFold(lane int) *fold {
	return &fold{lane: lane, campaigns: make(map[string]*campaign)}
}

// Parked is a line that became a dead letter, and why.
type Parked struct {
	Sequence uint64
	Line     uint32
	Reason   string
}

// run folds lines in order. It stops after an event that requires counting the rows again (see recount), and returns
// how many lines it folded and that event's campaign.
func (f *fold) run(lines []Line) (done int, recount string) {
	for i := range lines {
		l := &lines[i]
		problem := l.Problem
		if problem == nil {
			recount, problem = f.event(l)
		}
		if problem != nil {
			f.park(l, problem)
		}
		if recount != "" {
			return i + 1, recount
		}
	}
	return len(lines), ""
}

// event folds one event. If it returns an error, nothing was changed.
func (f *fold) event(l *Line) (recount string, err error) {
	if recount, err = f.change(l); err == nil && l.Event.Type.Spec().Campaign {
		f.changes = append(f.changes, campaignEvent{l.Event.Campaign, l.Event.Type.Spec().Name, l.Event.By, l.position(), l.Event.At})
	}
	return recount, err
}

// change folds one event into the rows that it changes.
func (f *fold) change(l *Line) (recount string, err error) {
	e := &l.Event
	switch e.Type {
	case wire.CampaignCreated:
		return "", f.created(e)
	case wire.CommandsRefused:
		for _, r := range e.Refused {
			f.refused(e, string(r.Refusal), int64(r.Count))
		}
		return "", nil
	case wire.CommandRejected:
		f.rejected(l)
		return "", nil
	case wire.ReminderDue, wire.NoEvent:
		return "", fmt.Errorf("%s does not belong on an event stream", e.Type)
	}
	c := f.campaigns[e.Campaign]
	if c == nil {
		return "", fmt.Errorf("%s of a campaign that is not in the tables", e.Type)
	}
	if e.N != 0 && int64(e.N) <= c.removed && e.Type != wire.CouponClaimed {
		return "", nil
	}
	if e.Type.ChangesCoupon() {
		return "", f.coupon(c, l)
	}
	switch e.Type {
	case wire.CampaignUpdated:
		return f.updated(c, e), nil
	case wire.CampaignPausedEvent:
		c.status, c.changed = "paused", true
	case wire.CampaignResumed:
		c.status, c.changed = "active", true
	case wire.CampaignEndedEvent:
		c.status, c.changed = "ended", true
	case wire.CampaignSoldOut:
		c.soldOutAt, c.changed = e.At, true
	case wire.CodesImported:
		c.imported += int64(len(e.Codes))
		c.soldOutAt, c.changed = 0, true
	case wire.CouponsExpired:
		c.expire(l)
		c.changed = true
	case wire.CouponsAllotted:
		return "", f.allotted(c, l)
	case wire.CouponClaimed:
		return "", f.claimed(c, l)
	case wire.ReminderSet:
		f.reminderSet(c, l)
	case wire.ReminderCancelled:
		f.reminderCancelled(c, l)
	case wire.RemindersDue:
		f.remindersDue(c, l)
	default:
		return "", fmt.Errorf("%s is not known to the read tables", e.Type)
	}
	return "", nil
}

// rejected stores a command line that could not be parsed.
func (f *fold) rejected(l *Line) {
	e := &l.Event
	f.refused(e, string(wire.Invalid), int64(max(e.Count, 1))) // one line of the log may count many
	f.deadLetters = append(f.deadLetters, deadLetter{
		stream: topology.CmdStream(f.lane), sequence: e.Sequence, line: e.Line, reason: e.Reason, payload: e.Payload,
		at: e.At, eventSeq: l.Sequence, eventLine: l.Number,
	})
}

// park makes a dead letter of an event line that cannot be applied.
func (f *fold) park(l *Line, problem error) {
	reason := pgcopy.Clean(problem.Error())
	f.parked = append(f.parked, Parked{Sequence: l.Sequence, Line: l.Number, Reason: reason})
	f.deadLetters = append(f.deadLetters, deadLetter{
		stream: topology.EvtStream(f.lane), sequence: l.Sequence, line: l.Number, reason: reason, payload: l.payload(),
		at: l.At, eventSeq: l.Sequence, eventLine: l.Number,
	})
}

// duplicateRow is the error for a duplicate row, with the same text whether the fold or PostgreSQL detects it.
func duplicateRow(constraint string) error {
	return fmt.Errorf("the row is there already (%s)", constraint)
}

// campaign has what the fold needs of a campaign's row, and its changes, with its coupons, tasks and counts.
type campaign struct {
	name string

	// As in the row, updated by the fold.
	status             string
	maxRedemptions     uint32
	expiresAt          wire.Instant
	namedOpensAt       wire.Instant
	expiredThrough     wire.Instant
	soldOutAt          wire.Instant
	claimed            int64
	redeemed           int64
	ownExpired         int64 // coupons with an expiry of their own that fell
	voided             int64
	imported           int64
	highest            int64 // number of a coupon
	removed            int64 // numbers up to this have left the tables
	inheritingLive     int64
	inheritingRedeemed int64

	endProcessedAt wire.Instant // 0 = the end was not announced

	statsDay wire.Instant // newest day, and what was counted on it
	today    stat

	created  *creation      // set if it is not in the table yet
	settings *wire.Settings // set if they changed
	changed  bool           // any column
	counted  bool           // claimed and inheritingLive

	through    wire.Instant // expiredThrough before this batch
	crossings  []crossing
	tasks      []*task
	last       *task       // of tasks, the one used last
	allotments []allotment // of this batch
	claims     *coupon     // new rows
	newest     *coupon     // claim
	coupons    map[uint32]*coupon
	totals     []*total // of days before statsDay
	stats      map[statKey]*stat
	statOrder  []statKey // keys of stats, in the order of their first occurrence in the log
}

type creation struct {
	at     wire.Instant
	number uint32
}

// coupon is one row of coupon_claim, and of coupon_state if something happened to it.
type coupon struct {
	n              uint32
	code           string
	customer       string
	attributes     []byte
	claimedAt      wire.Instant
	position       int64        // of the claim
	ownExpiry      wire.Instant // own expiry, 0 = the campaign's
	claimedExpiry  wire.Instant // the same, of a claim of this batch as its event says
	redeemedCount  uint32
	redeemedAt     wire.Instant
	voidedAt       wire.Instant
	voidReason     string
	changed        bool
	noRow          bool    // printed, and nothing happened to it yet
	printed, named bool    // printed, with a new row; or with one that is there and lacks the customer
	next           *coupon // with a new row
	recheck        bool    // redeemedAt must be read from the remaining redemptions
}

// redemption is a new row of that table.
type redemption struct {
	campaign     string
	customer     string // who held the coupon
	coupon       *coupon
	order        string
	at           wire.Instant
	rolledBackAt wire.Instant
	count        uint32 // of the coupon, with it; 0: its campaign allows one
	sequence     uint64
	line         uint32
}

// orderKey identifies the one redemption of a coupon for an order that is not rolled back.
type orderKey struct {
	campaign string
	n        uint32
	order    string
}

// rollback is a redemption of an earlier batch that was rolled back.
type rollback struct {
	orderKey
	at wire.Instant
}

// deadLetter is a new row of dead_letter.
type deadLetter struct {
	stream    string
	sequence  uint64
	line      uint32
	reason    string
	payload   string
	at        wire.Instant
	eventSeq  uint64
	eventLine uint32
}
