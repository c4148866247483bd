package push

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"
)

const (
	// MaxBatch is the most customers in one message of the log, and so the most passed in one call.
	MaxBatch = 500

	maxWorkers = 10_000
	maxTries   = 1_000
	maxUnacked = 100_000

	// pauseFactor and pauseMost: the pauses between tries are 2 s, 6 s, 18 s, 54 s, 1 min, 1 min … by default.
	pauseFactor = 3
	pauseMost   = time.Minute
)

// Since is where a name starts that has not been used before. The zero value is FromNow.
type Since struct {
	all bool
	at  time.Time
}

// FromNow starts with what fires after the first start under the name. A new sender then does not deliver reminders that
// are long over.
func FromNow() Since { return Since{} }

// FromStart starts with the first reminder ever fired.
func FromStart() Since { return Since{all: true} }

// From starts with what was fired at t or later; a future t is like FromNow.
func From(t time.Time) Since { return Since{at: t} }

// Options of a Pusher. Name is required; the zero value of every other field means its default.
type Options struct {
	// Name is shared by all processes that send for the same audience: 1 to 32 of A-Z a-z 0-9 _ -.
	Name string
	// Workers is how many calls of the function this process makes at once, 1 to 10,000. Defaults to 4.
	Workers int
	// Batch is the most customers in one call, 1 to 500. Defaults to 500. A message of the log with more is split; messages
	// are never joined.
	Batch int
	// Timeout bounds one call of the function, from 1 ms. Then its context ends and the try has failed. Defaults to 30 s.
	Timeout time.Duration
	// Tries is how often a reminder is tried before it becomes a dead letter, 1 to 1,000; up to twice that where several
	// processes share the name, or are restarted in between. Defaults to 5.
	Tries int
	// Pause is the wait after the first failed try, from 1 ms; later pauses are three times as long each, up to a minute (or
	// Pause, if that is longer). Defaults to 2 s.
	Pause time.Duration
	// Grace is how long calls in progress may take when Run is to end. Negative is none. Defaults to 10 s.
	Grace time.Duration

	// AckWait is the time without progress after which a process counts as dead and its messages go to others, from 100 ms.
	// Defaults to 30 s. AckWait, Unacked and Since count only at the first start under a name; later starts use those values.
	AckWait time.Duration
	// Unacked is how many messages of one lane may be in flight in all processes of the name together, or waiting for their
	// next try, 1 to 100,000. Lanes times Unacked bounds the calls at once. Defaults to 256.
	Unacked int
	// Since is where a new name starts. Defaults to FromNow().
	Since Since

	// SealKey is the log's seal key, as `scrip key seal` prints it: messages whose seal is not valid are then ignored.
	// Without it the form of a seal is checked and not its value. Run fails if it is not a seal key, or of another log.
	// Defaults to none.
	SealKey string

	// OnDead is called with each dead letter after it is stored. It may be called by several goroutines at once, and is
	// not called if the process dies first. Defaults to nothing.
	OnDead func(DeadLetter)
	// Logger gets failed tries, dead letters and ignored messages. Defaults to slog.Default().
	Logger *slog.Logger
}

// Func delivers reminders to customers. nil means that all of batch were delivered. A *Partial names those that were not;
// any other error means that none was. ctx ends after Options.Timeout, or Options.Grace after the context of Run ended.
// batch is the function's own.
type Func func(ctx context.Context, batch []Reminder) error

// Partial is the error of a Func that delivered to some customers and not to others: only the others are retried.
type Partial struct {
	// Failed are the indexes in the batch of those that were not delivered. None at all, or one outside the batch, counts as
	// if none was delivered.
	Failed []int
	// Err is the reason.
	Err error
}

func (e *Partial) Error() string {
	return fmt.Sprintf("%d not delivered: %v", len(e.Failed), e.Err)
}

func (e *Partial) Unwrap() error { return e.Err }

var nameForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

func checkName(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("push: Name is %q; give the audience a name of 1 to 32 of A-Z a-z 0-9 _ -", name)
	}
	return nil
}

func (o Options) withDefaults() (Options, error) {
	if err := checkName(o.Name); err != nil {
		return o, err
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	switch {
	case o.Grace == 0:
		o.Grace = 10 * time.Second
	case o.Grace < 0:
		o.Grace = 0
	}
	return o, errors.Join(
		whole("Workers", &o.Workers, 4, maxWorkers),
		whole("Batch", &o.Batch, MaxBatch, MaxBatch),
		whole("Tries", &o.Tries, 5, maxTries),
		whole("Unacked", &o.Unacked, 256, maxUnacked),
		long("Timeout", &o.Timeout, 30*time.Second, time.Millisecond),
		long("Pause", &o.Pause, 2*time.Second, time.Millisecond),
		long("AckWait", &o.AckWait, 30*time.Second, 100*time.Millisecond),
	)
}

func whole(name string, n *int, preset, most int) error {
	if *n == 0 {
		*n = preset
	}
	if *n < 1 || *n > most {
		return fmt.Errorf("push: %s is %d; give a number from 1 to %d, or 0 for %d", name, *n, most, preset)
	}
	return nil
}

func long(name string, d *time.Duration, preset, least time.Duration) error {
	if *d == 0 {
		*d = preset
	}
	if *d < least {
		return fmt.Errorf("push: %s is %s; give at least %s, or 0 for %s", name, *d, least, preset)
	}
	return nil
}

// pause returns the wait after so many failed tries.
func (o *Options) pause(tries int) time.Duration {
	d := o.Pause
	for ; tries > 1 && d < pauseMost; tries-- {
		d = min(pauseFactor*d, max(pauseMost, o.Pause))
	}
	return d
}
