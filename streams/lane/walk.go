package lane

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/lane/protocol"
)

// A walk is a query that goes over the lane's campaigns. It runs in the lane's goroutine, so it is done in slices of well
// under a millisecond, between which the lane decides. Campaigns created since are in it or not, as with pages.
const (
	maxWalks = 32 // in progress at once; further queries wait in the channel
	// Bounds of one slice: campaigns visited, views written.
	sliceLook   = 2000
	sliceViews  = 32
	maxAnswer   = 512 << 10 // bytes of a list; the rest is another query's
	maxListed   = 1001      // campaigns or coupons of a list: of the longest page, and one more
	defaultWait = 2 * time.Second
)

// sliceIndex is how many campaigns a slice adds to the order of names at most. Tests set it so that walks never end.
var sliceIndex = 400

// walk is one such query in progress.
type walk struct {
	query receivedQuery
	q     request
	next  func(w *walk) (done bool)
	now   wire.Instant
	at    domain.CouponPlace
	body  bytes.Buffer
	views int
	full  bool // the list was cut because it became large
}

// always is ready for reading.
var always = func() <-chan struct{} { c := make(chan struct{}); close(c); return c }()

// startWalk starts a walk.
func (o *owner) startWalk(query receivedQuery, q request, next func(*walk) bool) {
	if q.Limit <= 0 || q.Limit > maxListed {
		q.Limit = maxListed
	}
	w := &walk{query: query, q: q, next: next, now: wire.At(o.opt.Clock.Now())}
	if q.AfterN != 0 {
		w.at = domain.CouponPlace{Campaign: q.After, N: q.AfterN}
	}
	w.body.WriteString(`{"data":[`)
	o.walks = append(o.walks, w)
}

// walk does one slice of the oldest walk, and puts it after the others.
func (o *owner) walk() {
	w := o.walks[0]
	o.walks = o.walks[1:]
	if !o.mayAnswer() || o.late(w.query, w.q) {
		return
	}
	if !o.term.State().Index(sliceIndex) || !w.next(w) {
		o.walks = append(o.walks, w)
		return
	}
	w.body.WriteByte(']')
	if w.full {
		w.body.WriteString(`,"more":true`)
	}
	w.body.WriteByte('}')
	o.respond(protocol.Reply{Subject: w.query.msg.Reply, Payload: w.body.Bytes()})
}

// list writes the next campaigns.
func (o *owner) list(w *walk) (done bool) {
	most := min(sliceViews, w.q.Limit-w.views)
	views := o.term.State().List(w.q.After, most)
	for i := range views {
		if !w.add(&views[i]) {
			return true
		}
		w.q.After = views[i].Campaign
	}
	return len(views) < most || w.views == w.q.Limit
}

// customer visits the next campaigns and writes the coupons found.
func (o *owner) customer(w *walk) (done bool) {
	views, next, done := o.term.State().CustomerAfter(w.q.CustomerID, w.now, w.at, min(sliceViews, w.q.Limit-w.views), sliceLook)
	for i := range views {
		if !w.add(&views[i]) {
			return true
		}
	}
	w.at = next
	return done || w.views == w.q.Limit
}

// add writes a view, unless the list would become too large.
func (w *walk) add(view any) bool {
	before := w.body.Len()
	if w.views > 0 {
		w.body.WriteByte(',')
	}
	e := json.NewEncoder(&w.body)
	e.SetEscapeHTML(false) // six bytes for each < > & of a benefit
	if err := e.Encode(view); err != nil || w.body.Len() > maxAnswer && w.views > 0 {
		w.body.Truncate(before)
		w.full = true
		return false
	}
	w.body.Truncate(w.body.Len() - 1) // the encoder's newline
	w.views++
	return true
}
