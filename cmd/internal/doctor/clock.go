package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-4a2410e3/scrip/streams/topology"
	"github.com/seed-4a2410e3/scrip/streams/wall"
)

const clockFix = "synchronize the clocks of all machines (chrony, systemd-timesyncd)"

// clock compares the machine's clock with those of NATS and PostgreSQL, and with the one that cannot be set.
func (v *visit) clock(ctx context.Context) (all []Finding) {
	ctx, cancel := context.WithTimeout(ctx, v.wait)
	defer cancel()
	now := v.Clock.Now()
	if step := now.Round(0).Sub(v.began.Round(0)) - time.Since(v.started); step.Abs() >= clockBound.warn {
		all = append(all, bad(Warn, clockFix, "the clock was set by %s while this ran; steps ahead of more than clock.tolerance (%s) make lanes wait", step.Round(time.Millisecond), wall.DefaultTolerance)...)
	}
	for _, source := range []struct {
		name string
		read func(context.Context) (time.Time, bool, error)
	}{{"NATS", v.natsTime}, {"PostgreSQL", v.postgresTime}} {
		before := v.Clock.Now()
		there, known, err := source.read(ctx)
		after := v.Clock.Now()
		switch {
		case err != nil || !known:
			continue // there is none, or another check has reported why it cannot be reached
		default:
			middle := before.Add(after.Sub(before) / 2)
			skew := there.Sub(middle)
			within := after.Sub(before) / 2
			level := most(max(0, skew.Abs()-within), clockBound)
			all = append(all, graded(level, clockFix, "the clock of %s is %s this machine's (within %s)", source.name, apart(skew), within.Round(time.Millisecond))...)
		}
	}
	if len(all) == 0 {
		return good("%s; there is no other clock to compare with", now.UTC().Format(time.RFC3339))
	}
	return all
}

func apart(skew time.Duration) string {
	text := skew.Abs().Round(time.Millisecond).String()
	if skew < 0 {
		return text + " behind"
	}
	return text + " ahead of"
}

// natsTime is when the server gathered the information about a stream.
func (v *visit) natsTime(ctx context.Context) (time.Time, bool, error) {
	if v.natsURL() == "" {
		return time.Time{}, false, nil
	}
	nc, err := v.connect(v.natsURL())
	if err != nil {
		return time.Time{}, false, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return time.Time{}, false, err
	}
	stream, err := js.Stream(ctx, topology.EvtStream(0))
	if err != nil {
		return time.Time{}, false, err
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return time.Time{}, false, fmt.Errorf("reading a stream: %w", err)
	}
	return info.TimeStamp, !info.TimeStamp.IsZero(), nil
}

func (v *visit) postgresTime(ctx context.Context) (at time.Time, known bool, err error) {
	if v.postgresURL() == "" {
		return at, false, nil
	}
	db, err := pgx.Connect(ctx, v.postgresURL())
	if err != nil {
		return at, false, err
	}
	defer db.Close(context.WithoutCancel(ctx)) //nolint:errcheck // read only
	err = db.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&at)
	return at, err == nil, err
}
