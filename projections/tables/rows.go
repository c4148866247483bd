package tables

import "github.com/seed-4a2410e3/scrip/domain/wire"

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
	expired            int64
	voided             int64
	imported           int64
	inheritingLive     int64
	inheritingRedeemed int64

	statsDay wire.Instant

	created  *creation      // set if it is not in the table yet
	settings *wire.Settings // set if they changed
	changed  bool           // any column
	counted  bool           // claimed and inheritingLive

	through   wire.Instant // expiredThrough before this batch
	hasTask   wire.Instant // at which a task exists for certain, 0 = at none
	hasTotal  wire.Instant // day whose total exists for certain
	crossings []crossing
	tasks     []*task
	last      *task // of tasks, the one used last
	claims    *coupon
	newest    *coupon // claim
	highest   uint32  // number claimed
	coupons   map[uint32]*coupon
	totals    []*total // by day
	stats     map[statKey]*stat
	statOrder []statKey // keys of stats, in the order of their first occurrence in the log
}

type creation struct {
	at     wire.Instant
	number uint32
}

// coupon is one row of coupon_row.
type coupon struct {
	n              uint32
	code           string
	customer       string
	attributes     []byte
	claimedAt      wire.Instant
	position       int64        // of the claim
	ownExpiry      wire.Instant // own expiry, 0 = the campaign's
	redeemedCount  uint32
	redeemedAt     wire.Instant
	voidedAt       wire.Instant
	voidReason     string
	isNew, changed bool
	next           *coupon // claimed in this batch
	recheck        bool    // redeemedAt must be read from the remaining redemptions
}

// redemption is a new row of that table.
type redemption struct {
	campaign     string
	coupon       *coupon
	order        string
	at           wire.Instant
	rolledBackAt wire.Instant
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
