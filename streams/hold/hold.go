// Package hold is a named lock with a TTL, in KV, by which a tool stops an activity of all servers for a while.
//
//	scrip backup ── Take "purge-3" ──> KV SCRIP_LEASE, key hold.purge-3, TTL 10 s ──> Run renews it every 3 s
//	                                               └── Held? ── the present owner of lane 3, before it purges
//
// It does not depend on a lane's owner, so a takeover does not end it. A lock has one holder at a time.
//
// What a crash does: the key is not renewed and expires within ten seconds; if NATS crashed as well, perhaps only within a
// minute. A holder that was paused for longer finds out at its next renewal; it must check by other means what it did
// meanwhile, since others continued.
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
	// TTL is how long a lock outlives its holder. The server counts in whole seconds.
	TTL = 10 * time.Second
	// renewEvery allows two renewals to be lost.
	renewEvery = 3 * time.Second
	// attempt bounds one request.
	attempt = 2 * time.Second
	// waitEvery is how often Take checks whether the lock is free.
	waitEvery = 250 * time.Millisecond
	// markerTTL is how long the marker of a released lock stays.
	markerTTL = time.Minute

	// abandoned is the age at which a lock that the server still has counts as expired, by this machine's clock. nats-server
	// 2.15 can forget the TTL of a key in a crash, or restore a key that had expired; the key then never expires. The age
	// allows for clocks that differ. If they differ by more, purges and a second holder continue beside a living holder, which
	// finds out as after any lost lock.
	abandoned = time.Minute

	subjectPrefix = "$KV." + topology.LeaseBucket + "."
	keyPrefix     = "hold."
)

// now is set by tests.
var now = time.Now

// Restore is the lock of a restore on a NATS server.
const Restore = "restore"

// Purge is the lock against purges of a lane's commands.
func Purge(lane int) string { return "purge-" + strconv.Itoa(lane) }

// ErrLost ends Run: the lock expired, or another holder has it.
var ErrLost = errors.New("lock lost")

// HeldError: another holder has the lock, and renews it.
type HeldError struct {
	Name string
	Note Note
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("%s has held %q since %s", e.Note.By, e.Name, e.Note.Since.Format(time.RFC3339))
}

// Note describes a holder.
type Note struct {
	By    string    `json:"by"`
	Since time.Time `json:"since"`
	Nonce string    `json:"nonce"`
}

// Hold is a lock that this process has. It is used by one goroutine at a time.
type Hold struct {
	js       jetstream.JetStream
	name     string
	note     Note
	revision uint64
	renewed  time.Time // when the last renewal that succeeded was sent
}

// Take takes a lock. It waits for at most patience while another holder has it: the lock of a dead one expires after TTL. by
// describes this holder for people. Errors: *HeldError, and NATS not answering. Call Run and, in the end, Release.
func Take(ctx context.Context, js jetstream.JetStream, name, by string, patience time.Duration) (*Hold, error) {
	h := &Hold{js: js, name: name, note: Note{By: by, Since: time.Now().UTC().Truncate(time.Second), Nonce: uuid.NewString()}}
	tick := time.NewTicker(waitEvery)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; {
		note, revision, held, err := look(ctx, js, name)
		if err != nil {
			return nil, fmt.Errorf("taking lock %q: %w", name, err)
		}
		if !held || note.Nonce == h.note.Nonce { // the latter: this call's write, whose answer was lost
			err := h.write(ctx, revision)
			if err == nil {
				return h, nil
			}
			if ctx.Err() != nil || time.Now().After(deadline) {
				return nil, fmt.Errorf("taking lock %q: %w", name, err)
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

// Run renews the lock until ctx ends, and returns nil then, or ErrLost.
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

// renew writes the key again. An error is ignored until TTL is over.
func (h *Hold) renew(ctx context.Context) error {
	err := h.write(ctx, h.revision)
	if err == nil {
		return nil
	}
	note, revision, held, lookErr := look(ctx, h.js, h.name)
	switch {
	case lookErr == nil && held && note.Nonce == h.note.Nonce:
		h.revision = revision // this holder's renewal, whose answer was lost
	case lookErr == nil:
		return fmt.Errorf("%w: %q expired or was taken by another holder", ErrLost, h.name)
	}
	if time.Since(h.renewed) > TTL {
		return fmt.Errorf("%w: %q could not be renewed for %s: %w", ErrLost, h.name, TTL, err)
	}
	return nil
}

// write writes the key with an expected revision and a TTL. (KeyValue.Update would drop the TTL.)
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

// Release releases the lock. If that fails it expires.
func (h *Hold) Release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	kv, err := h.js.KeyValue(ctx, topology.LeaseBucket)
	if err == nil {
		err = kv.Purge(ctx, keyPrefix+h.name, jetstream.LastRevision(h.revision), jetstream.PurgeTTL(markerTTL))
	}
	if err != nil {
		return fmt.Errorf("releasing lock %q, it expires in %s: %w", h.name, TTL, err)
	}
	return nil
}

// Held returns the holder of a lock as the bucket's leader knows it: every Held that begins after a Take has returned sees
// its lock. Without a bucket no lock is held.
func Held(ctx context.Context, js jetstream.JetStream, name string) (Note, bool, error) {
	note, _, held, err := look(ctx, js, name)
	if err != nil {
		err = fmt.Errorf("reading lock %q: %w", name, err)
	}
	return note, held, err
}

// look reads from the leader: a direct get, which KeyValue.Get does, may be answered by a replica that lags. revision is that
// of the marker if there is one.
func look(ctx context.Context, js jetstream.JetStream, name string) (note Note, revision uint64, held bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	request := fmt.Appendf(nil, `{"last_by_subj":%q}`, subjectPrefix+keyPrefix+name)
	msg, err := js.Conn().RequestWithContext(ctx, topology.API(js, "STREAM.MSG.GET."+topology.LeaseStream), request)
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
		// Released by its holder; or a marker that the server left when the TTL expired.
		if header.Get("KV-Operation") != "" || header.Get(jetstream.MarkerReasonHeader) != "" {
			return Note{}, revision, false, nil
		}
	}
	if err := json.Unmarshal(answer.Message.Data, &note); err != nil {
		return Note{}, revision, false, nil // not a lock of this package
	}
	return note, revision, now().Sub(answer.Message.Time) < abandoned, nil
}
