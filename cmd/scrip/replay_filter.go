package main

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/replay"
)

// filterFlags adds the flags that select events.
func (m *Main) filterFlags(cmd *cobra.Command, filter *replay.Filter) {
	f := cmd.Flags()
	f.Var(&cli.Value{Kind: "NAME", Parse: func(s string) error {
		filter.Campaigns = append(filter.Campaigns, s)
		return nil
	}}, "campaign", "events of this campaign")
	f.Var(&cli.Value{Kind: "TYPE", Parse: func(s string) error {
		t, err := replay.ParseType(s)
		filter.Types = append(filter.Types, t)
		return err
	}}, "type", "events of this type, such as coupon.claimed")
	f.Var(&cli.Value{Kind: "ID", Parse: func(s string) error {
		if s == "" {
			return errors.New("must be the id of a customer; omit the flag for all")
		}
		filter.Customer = s
		return nil
	}}, "customer", "events about this customer")
	f.Var(m.moment(&filter.Since), "since", "events at or after this time")
	f.Var(m.moment(&filter.Until), "until", "events before this time")
	f.Var(&cli.Value{Kind: "N", Parse: func(s string) error {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil {
			return errors.New("must be the number of a lane, from 0")
		}
		filter.Lanes = append(filter.Lanes, int(n))
		return nil
	}}, "lane", "events of this lane")
	f.Var(position(&filter.From), "from", "events of a lane from this message on; without --lane, of no other lane")
	f.Var(position(&filter.To), "to", "events of a lane up to this message; without --lane, of no other lane")
}

// moment is a time that may be in the past: -24h.
func (m *Main) moment(into *wire.Instant) *cli.Value {
	return &cli.Value{Kind: "TIME", Parse: func(s string) (err error) {
		now := m.Now()
		if ago, relative := strings.CutPrefix(s, "-"); relative {
			d, err := time.ParseDuration(ago)
			if err != nil || d < 0 || strings.HasPrefix(ago, "-") || strings.HasPrefix(ago, "+") {
				return errMoment
			}
			*into = wire.At(now.Truncate(time.Millisecond).Add(-d))
			return nil
		}
		if *into, err = parseTime(s, now); err != nil {
			return errMoment
		}
		return nil
	}}
}

var errMoment = errors.New("must be an RFC 3339 time such as 2026-11-27T00:00:00Z, or a time from now such as -24h or +10m")

// position is LANE:SEQ, one per lane.
func position(into *map[int]uint64) *cli.Value {
	return &cli.Value{Kind: "LANE:SEQ", Parse: func(s string) error {
		lane, sequence, _ := strings.Cut(s, ":")
		n, err1 := strconv.ParseUint(lane, 10, 16)
		seq, err2 := strconv.ParseUint(sequence, 10, 63)
		if err1 != nil || err2 != nil || seq == 0 {
			return errors.New("must be a lane from 0 and a message sequence from 1, such as 0:1000")
		}
		if *into == nil {
			*into = map[int]uint64{}
		}
		if _, twice := (*into)[int(n)]; twice {
			return errors.New("can be given once per lane; keep one")
		}
		(*into)[int(n)] = seq
		return nil
	}}
}
