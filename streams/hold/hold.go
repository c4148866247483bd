// Package hold is a word that a tool gives to all servers at once, in KV: leave that for a while.
//
//	scrip backup ── Take "purge-3" ──> KV SCRIP_LEASE, key hold.purge-3, TTL 10 s ──> Run renews it every 3 s
//	                                               └── Held? ── lane 3's owner, whoever that is now, before it purges
//
// It belongs to no owner, so it survives their change. A name has one holder at a time.
//
// What a crash does: nobody renews, and the key runs out within ten seconds; where NATS crashed as well, perhaps only within
// a minute. A holder that was stopped in its tracks for
// longer finds out at its next renewal; what it did meanwhile it has to check by other means, since others went on.
package hold

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/topology"
)

const (
	// TTL is how long a hold outlives its holder. The server counts in whole seconds.
	TTL = 10 * time.Second
	// renewEvery leaves room for two renewals that are lost.
	renewEvery = 3 * time.Second
	// attempt bounds one request.
	attempt = 2 * time.Second
	// waitEvery is how often Take looks whether the name is free.
	waitEvery = 250 * time.Millisecond
	// markerTTL is how long the marker of a released hold stays.
	markerTTL = time.Minute

	// abandoned is the age at which a hold that the server still has counts as dead, by this machine's clock. nats-server
	// 2.15 can forget the TTL of a key in a crash, or bring back a key that had run out; the key then never runs out. The
	// age leaves room for clocks that are apart. Where they are further apart, purges and a second holder go on beside a
	// living holder, who finds out as after any hold that was lost.
	abandoned = time.Minute

	subjectPrefix = "$KV." + topology.LeaseBucket + "."
	keyPrefix     = "hold."
)

// now is set by tests.
var now = time.Now

// Restore is the name under which one restore at a time works on a NATS server.
const Restore = "restore"

// Purge is the name under which a lane's commands are not purged.
func Purge(lane int) string { return "purge-" + strconv.Itoa(lane) }

// ErrLost ends Run: the hold ran out, or somebody else has it.
var ErrLost = errors.New("hold lost")

// HeldError says that somebody else has the name, and goes on renewing it.
type HeldError struct {
	Name string
	Note Note
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("%s has held %q since %s", e.Note.By, e.Name, e.Note.Since.Format(time.RFC3339))
}

// Note is what a holder says of itself.
type Note struct {
	By    string    `json:"by"`
	Since time.Time `json:"since"`
	Nonce string    `json:"nonce"`
}

// Hold is a name that this process has. It is used by one goroutine at a time.
type Hold struct {
	js       jetstream.JetStream
	name     string
	note     Note
	revision uint64
	renewed  time.Time // when the last renewal that succeeded was sent
}

// Take takes a name, waiting for at most patience while another has it: a holder that died is gone after TTL. by says to
// people who we are. Errors: *HeldError, and the server not answering. Call Run and, in the end, Release.
func Take(ctx context.Context, js jetstream.JetStream, name, by string, patience time.Duration) (*Hold, error) {
	h := &Hold{js: js, name: name, note: Note{By: by, Since: time.Now().UTC().Truncate(time.Second), Nonce: uuid.NewString()}}
	tick := time.NewTicker(waitEvery)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; {
		note, revision, held, err := look(ctx, js, name)
		if err != nil {
			return nil, fmt.Errorf("taking hold %q: %w", name, err)
		}
		if !held || note.Nonce == h.note.Nonce { // the latter: our own write, whose answer was lost
			err := h.write(ctx, revision)
			if err == nil {
				return h, nil
			}
			if ctx.Err() != nil || time.Now().After(deadline) {
				return nil, fmt.Errorf("taking hold %q: %w", name, err)
			}
		} else if time.Now().After(deadline) {
			return nil, &HeldError{name, note}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Run renews the hold until ctx ends, and returns nil then, or ErrLost.
func (h *Hold) Run(ctx context.Context) error {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := h.renew(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// renew writes once more. Failing is no matter until the time is up.
func (h *Hold) renew(ctx context.Context) error {
	err := h.write(ctx, h.revision)
	if err == nil {
		return nil
	}
	note, revision, held, lookErr := look(ctx, h.js, h.name)
	switch {
	case lookErr == nil && held && note.Nonce == h.note.Nonce:
		h.revision = revision // our own renewal, whose answer was lost
	case lookErr == nil:
		return fmt.Errorf("%w: %q ran out or was taken by another", ErrLost, h.name)
	}
	if time.Since(h.renewed) > TTL {
		return fmt.Errorf("%w: %q could not be renewed for %s: %w", ErrLost, h.name, TTL, err)
	}
	return nil
}

// write writes behind an expected revision, with a TTL. (KeyValue.Update would drop the TTL.)
func (h *Hold) write(ctx context.Context, revision uint64) error {
	value, err := json.Marshal(h.note)
	if err != nil {
		return err
	}
	sent := time.Now()
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	ack, err := h.js.Publish(ctx, subjectPrefix+keyPrefix+h.name, value,
		jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithMsgTTL(TTL))
	if err != nil {
		return err
	}
	h.revision, h.renewed = ack.Sequence, sent
	return nil
}

// Release gives the name up. If that fails it runs out by itself.
func (h *Hold) Release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	kv, err := h.js.KeyValue(ctx, topology.LeaseBucket)
	if err == nil {
		err = kv.Purge(ctx, keyPrefix+h.name, jetstream.LastRevision(h.revision), jetstream.PurgeTTL(markerTTL))
	}
	if err != nil {
		return fmt.Errorf("releasing hold %q, it runs out in %s: %w", h.name, TTL, err)
	}
	return nil
}

// Held says whether somebody has the name, as the bucket's leader knows it: a hold whose Take has returned is seen by
// every Held that begins after that. Without a bucket nobody has.
func Held(ctx context.Context, js jetstream.JetStream, name string) (Note, bool, error) {
	note, _, held, err := look(ctx, js, name)
	if err != nil {
		err = fmt.Errorf("looking at hold %q: %w", name, err)
	}
	return note, held, err
}

// look asks the leader: a direct get, which KeyValue.Get does, may be answered by a replica that lags. revision is that
// of the marker where there is one.
func look(ctx context.Context, js jetstream.JetStream, name string) (note Note, revision uint64, held bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	ask := fmt.Appendf(nil, `{"last_by_subj":%q}`, subjectPrefix+keyPrefix+name)
	msg, err := js.Conn().RequestWithContext(ctx, topology.API(js, "STREAM.MSG.GET."+topology.LeaseStream), ask)
	if err != nil {
		return Note{}, 0, false, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Sequence uint64    `json:"seq"`
			Time     time.Time `json:"time"`
			Header   []byte    `json:"hdrs"`
			Data     []byte    `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return Note{}, 0, false, err
	}
	if e := answer.Error; e != nil {
		if e.ErrorCode == jetstream.JSErrCodeMessageNotFound || e.ErrorCode == jetstream.JSErrCodeStreamNotFound {
			return Note{}, 0, false, nil
		}
		return Note{}, 0, false, e
	}
	revision = answer.Message.Sequence
	if len(answer.Message.Header) > 0 {
		header, err := nats.DecodeHeadersMsg(answer.Message.Header)
		if err != nil {
			return Note{}, 0, false, err
		}
		// Released by its holder; or a marker the server left when the TTL ran out.
		if header.Get("KV-Operation") != "" || header.Get(jetstream.MarkerReasonHeader) != "" {
			return Note{}, revision, false, nil
		}
	}
	if err := json.Unmarshal(answer.Message.Data, &note); err != nil {
		return Note{}, revision, false, nil // not ours
	}
	return note, revision, now().Sub(answer.Message.Time) < abandoned, nil
}
