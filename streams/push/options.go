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
	// MaxBatch is the most customers that one message of the log tells, and so the most handed over at once.
	MaxBatch = 500

	maxWorkers = 10_000
	maxTries   = 1_000
	maxUnacked = 100_000

	// pauseFactor and pauseMost: the pauses between tries are 2 s, 6 s, 18 s, 54 s, 1 min, 1 min … by default.
	pauseFactor = 3
	pauseMost   = time.Minute
)

// Since says where a name begins that has not been used before. The zero value is FromNow.
type Since struct {
	all bool
	at  time.Time
}

// FromNow begins with what fires after the first start under the name. It keeps a new sender from telling customers of
// what is long over.
func FromNow() Since { return Since{} }

// FromStart begins with the first reminder ever fired.
func FromStart() Since { return Since{all: true} }

// From begins with what was fired at t or later; a t to come is like FromNow.
func From(t time.Time) Since { return Since{at: t} }

// Options of a Pusher. Name is required; for the rest the zero value has the written default.
type Options struct {
	// Name is shared by all processes that send for the same audience: 1 to 32 of A-Z a-z 0-9 _ -.
	Name string
	// Workers is how many calls of the function are under way at once in this process, 1 to 10,000. Defaults to 4.
	Workers int
	// Batch is the most customers handed over in one call, 1 to 500. Defaults to 500. A message of the log with more is
	// handed over in parts; messages are never joined.
	Batch int
	// Timeout bounds one call of the function, from 1 ms. Its context ends then, and the try has failed. Defaults to 30 s.
	Timeout time.Duration
	// Tries is how often a reminder is tried before it becomes a dead letter, 1 to 1,000; up to twice that where several
	// processes share the name, or are restarted in between. Defaults to 5.
	Tries int
	// Pause is waited after the first failed try, from 1 ms; later pauses are three times as long each, up to a minute (or
	// Pause, if that is longer). Defaults to 2 s.
	Pause time.Duration
	// Grace is how long calls under way may take to finish when Run is to end. Negative is none. Defaults to 10 s.
	Grace time.Duration

	// AckWait is after which silence a process counts as dead and its messages go to others, from 100 ms. Defaults to
	// 30 s. It, Unacked and Since count only at the first start under a name; whoever comes later takes what stands there.
	AckWait time.Duration
	// Unacked is how many messages of one lane may be with all processes of the name together, or waiting for their next
	// try, 1 to 100,000. Lanes times Unacked bounds how many calls can be under way. Defaults to 256.
	Unacked int
	// Since is where a new name begins. Defaults to FromNow().
	Since Since

	// SealKey is the log's seal key, as `scrip key seal` prints it: messages whose seal is not valid are then passed over.
	// Without it whatever looks like a seal is taken for one. Run fails if it is none, or of another log. Defaults to none.
	SealKey string

	// OnDead is told of each dead letter after it is on the log. It may be called by several goroutines at once, and is
	// not called if the process dies first. Defaults to nothing.
	OnDead func(DeadLetter)
	// Logger gets failed tries, dead letters and messages passed over. Defaults to slog.Default().
	Logger *slog.Logger
}

// Func tells customers. nil means all of batch were told. A *Partial says who was not; any other error means nobody was.
// ctx ends after Options.Timeout, or Options.Grace after Run was told to end. batch is the function's own.
type Func func(ctx context.Context, batch []Reminder) error

// Partial is the error of a Func that told some customers and not others: only the others are tried again.
type Partial struct {
	// Failed are the indexes in the batch of those who were not told. None at all, or one that is not in the batch,
	// makes no sense and counts as if nobody was told.
	Failed []int
	// Err says why.
	Err error
}

func (e *Partial) Error() string {
	return fmt.Sprintf("%d not told: %v", len(e.Failed), e.Err)
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

// pause is how long to wait after so many failed tries.
func (o *Options) pause(tries int) time.Duration {
	d := o.Pause
	for ; tries > 1 && d < pauseMost; tries-- {
		d = min(pauseFactor*d, max(pauseMost, o.Pause))
	}
	return d
}
