package push

import (
	"context"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
)

// backend is where the messages of a name come from, and where what it has is stored. There are two: direct uses JetStream with
// the credentials of servers; keyed requests the same from the service, where Proxy does it with a direct.
type backend interface {
	// open finds the log, and makes what the name needs: consumers, streams and the bucket. It may be called again.
	open(ctx context.Context) (opened, error)
	// pull passes the messages of a place to take, until ctx ends, or requesting or take fails. A message that is in flight at
	// the end is waited for, so that take can return it: otherwise it is missing until AckWait is over.
	pull(ctx context.Context, at place, take func(delivery) error) error
	// mend makes the consumer of a place again, where it was, if that is why pull failed.
	mend(ctx context.Context, at place, cause error) error
	// answer is one of asAck, asNak and asProgress, and does not wait. confirm is asAck, and waits until the server has it.
	answer(token, as string, delay time.Duration) error
	confirm(ctx context.Context, token string) error

	// read returns a message of the log, awaitSkip the skip list once the message is in it that stopped a lane.
	read(ctx context.Context, lane int, sequence uint64) (eventlog.Raw, error)
	awaitSkip(ctx context.Context, lane int, cause error) (eventlog.Skips, error)

	// put stores which lines of a message wait.
	put(ctx context.Context, c class, id messageID, e entry) error
	// save adds to the counts of a lane, and records its position.
	save(ctx context.Context, n counts) error

	// optedOut returns which of up to MaxBatch customers want no reminders now.
	optedOut(ctx context.Context, customers []string) (map[string]bool, error)
	// close ends what optedOut has started.
	close()

	letterStore
}

// letterStore has the dead letters of a name.
type letterStore interface {
	// letters lists those that are stored now, oldest first.
	letters(ctx context.Context) iter.Seq2[DeadLetter, error]
	// letter is that of a message; ok is false if there is none.
	letter(ctx context.Context, message messageID) (l DeadLetter, ok bool, err error)
	// add adds reminders to the letter of their message, or writes it, and retries until that is stored or ctx ends. Those that are
	// in it already are not added again: the process that wrote it died before the acknowledgement.
	add(ctx context.Context, l *DeadLetter) error
	// remove removes reminders from the letter of a message, and the letter if it has no others.
	remove(ctx context.Context, message messageID, keys []string) error
	// settle stores the result of a retry, also if ctx has ended since.
	settle(ctx context.Context, l DeadLetter, left []Reminder, cause error) error
}

// newBackend returns what serves the log-in of a connection.
func newBackend(js jetstream.JetStream, opts *Options, from source) backend {
	if natsx.IsInbox(js.Conn().Opts.InboxPrefix) {
		return &keyed{nc: js.Conn(), opts: opts}
	}
	return newDirect(js, opts, from)
}

// place is where messages come from: a lane of the log, or a class of WaitStream.
type place struct {
	lane  int
	waits bool
	class class
}

// delivery is a message as a consumer delivered it.
type delivery struct {
	eventlog.Raw
	deliveries int
	token      string // the subject of JetStream to which it is answered
}

// longer returns a context that ends so long after ctx.
func longer(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	after, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		_ = natsx.Pause(after, by)
		cancel()
	})
	return after, func() { stop(); cancel() }
}
