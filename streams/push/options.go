package push

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/wall"
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

// Since is where a name starts that has not been used before. The zero value starts with what fires after the first start under
// the name: a new sender then does not deliver reminders that are long over.
type Since struct {
	all bool
	at  time.Time
}

// FromStart starts with the first reminder ever fired.
func FromStart() Since { return Since{all: true} }

// From starts with what was fired at t or later; a future t is like the zero value.
func From(t time.Time) Since { return Since{at: t} }

// Options of a Pusher. Name is required; the zero value of every other field means its default.
type Options struct {
	// Name is shared by all processes that send for the same audience: 1 to 32 of A-Z a-z 0-9 _ -.
	Name string
	// Workers is how many calls of the function this process makes at once, 1 to 10,000, and fewer while the gateway is slow or
	// fails. Defaults to 4.
	Workers int
	// Batch is the most customers in one call, 1 to 500. Defaults to 500. A message of the log with more is split; messages
	// are never joined.
	Batch int
	// Timeout bounds one call of the function, from 1 ms. Then its context ends and the try has failed. Defaults to 30 s.
	Timeout time.Duration
	// Tries is how many failed tries of a reminder make it a dead letter, 1 to 1,000. A failed try is a call that the gateway
	// refused, or that failed while calls for other messages succeeded. Defaults to 5.
	Tries int
	// Pause is the wait after the first failed try, from 1 ms; later pauses are three times as long each, up to a minute (or
	// Pause, if that is longer). It is also the first pause between probes while the gateway is away; those double up to the
	// same limit. Defaults to 2 s.
	Pause time.Duration
	// Schedule, if not empty, are the waits after the first failed try, the second, and so on; the last one repeats. It
	// replaces those that follow from Pause.
	Schedule []time.Duration
	// MaxAge is how long after it fired a reminder is still worth delivering, from 1 s; later it becomes a dead letter without
	// a call. It counts from the first start under the name for what fired before that. Negative is no limit. Defaults to 24 h.
	MaxAge time.Duration
	// Grace is how long calls in progress may take when Run is to end. Negative is none. Defaults to 10 s.
	Grace time.Duration

	// AckWait is the time without progress after which a process counts as dead and its messages go to others, from 100 ms.
	// Defaults to 30 s. AckWait, Unacked and Since count only at the first start under a name; later starts use those values.
	AckWait time.Duration
	// Unacked is how many messages of one lane may be in flight in all processes of the name together, 1 to 100,000; those that
	// wait for their next try do not count. Lanes times Unacked bounds the calls at once. Defaults to 256.
	Unacked int
	// Since is where a new name starts.
	Since Since

	// SealKey is the log's seal key, as `scrip key seal` prints it: messages whose seal is not valid are then ignored.
	// Without it the form of a seal is checked and not its value. Run fails if it is not a seal key, or of another log.
	// Defaults to none.
	SealKey string

	// OnDead is called with each dead letter after it is stored. It may be called by several goroutines at once, and is
	// not called if the process dies first. Defaults to nothing.
	OnDead func(DeadLetter)
	// Clock measures pauses and ages. Nil is the machine's.
	Clock wall.Clock
	// Logger gets failed tries, dead letters and ignored messages. Defaults to slog.Default().
	Logger *slog.Logger
}

// recheck is how long a message that is not due yet stays with NATS at most before it is looked at again. NATS measures by
// the machine's clock, so under another one the looks are frequent.
func (o *Options) recheck() time.Duration {
	if o.Clock == wall.Machine {
		return time.Hour
	}
	return 20 * time.Millisecond
}

// Func delivers reminders to customers. nil means that all of batch were delivered. A *Partial names those that were not;
// any other error means that none was. *Refused and *Away show whether the gateway works; after an error of another kind
// that is decided by whether other calls succeed. ctx ends after Options.Timeout, or Options.Grace after the context of Run ended.
// batch is the function's own.
type Func func(ctx context.Context, batch []Reminder) error

var nameForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// EventsPrefix starts the names of audiences of NewEvents.
const EventsPrefix = "webhook-"

func checkName(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("push: Name is %q; give the audience a name of 1 to 32 of A-Z a-z 0-9 _ -", name)
	}
	return nil
}

// Check returns an error that names the option whose value is not valid.
func (o Options) Check() error {
	_, err := o.withDefaults()
	return err
}

func (o Options) withDefaults() (Options, error) {
	if err := checkName(o.Name); err != nil {
		return o, err
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Clock == nil {
		o.Clock = wall.Machine
	}
	if o.MaxAge == 0 {
		o.MaxAge = 24 * time.Hour
	}
	if o.MaxAge > 0 && o.MaxAge < time.Second {
		return o, fmt.Errorf("push: MaxAge is %s; give at least 1s, 0 for 24h, or less than 0 for no limit", o.MaxAge)
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

func (o *Options) pause(tries int) time.Duration {
	if n := len(o.Schedule); n > 0 {
		return o.Schedule[min(max(tries, 1), n)-1]
	}
	d := o.Pause
	for ; tries > 1 && d < pauseMost; tries-- {
		d = min(pauseFactor*d, max(pauseMost, o.Pause))
	}
	return d
}
