package natsx

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// retryEvery is the pause between attempts: a leader election takes a second or two.
	retryEvery = 100 * time.Millisecond
	// retryFor bounds the retries to a server that does not answer, if ctx sets no earlier end.
	retryFor = 30 * time.Second
	// attemptFor bounds one attempt; a request sent during an election is never answered.
	attemptFor = 5 * time.Second
)

// ErrAgain makes retry start another round: another server was first.
var ErrAgain = errors.New("another server was first")

// JetStream error codes that nats.go has no name for.
const (
	codeNoPeers       jetstream.ErrorCode = 10005
	codeClusterAway   jetstream.ErrorCode = 10008
	codeNoResources   jetstream.ErrorCode = 10023
	CodeNoStorage     jetstream.ErrorCode = 10047
	codeNotCreated    jetstream.ErrorCode = 10049 // also while an attempt that was given up is still at work
	codeOffline       jetstream.ErrorCode = 10118
	codeStoreFailed   jetstream.ErrorCode = 10077 // also of a disk
	codeWrongSeq      jetstream.ErrorCode = 10071
	codeWrongSeqAgain jetstream.ErrorCode = 10164
)

// Retry calls f until it succeeds or fails for a reason that a retry does not resolve. f may have its effect twice: reads,
// creations of things that are equal or exist already, and updates with an expected revision.
func Retry(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, retryFor)
	defer cancel()
	tick := time.NewTicker(retryEvery)
	defer tick.Stop()
	for {
		attempt, done := context.WithTimeout(ctx, attemptFor)
		err := f(attempt)
		done()
		if err == nil || !transient(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-tick.C:
		}
	}
}

func transient(err error) bool {
	return errors.Is(err, ErrAgain) || Transient(err) || HasCode(err, codeNotCreated)
}

func IsWrongSequence(err error) bool { return HasCode(err, codeWrongSeq, codeWrongSeqAgain) }

// IsFull reports whether a stream refused a message because of its bound.
func IsFull(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == codeStoreFailed && strings.HasPrefix(api.Description, "maximum ")
}

func HasCode(err error, codes ...jetstream.ErrorCode) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && slices.Contains(codes, api.ErrorCode)
}
