package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flags that the commands share.
type flags struct {
	options
	durabilities []string
	systems      []string
	rateText     string
	output       string
	results      string
	name         string
	plot         string
}

func (f *flags) add(fs *pflag.FlagSet, durabilities ...string) {
	fs.StringSliceVar(&f.durabilities, "durability", durabilities, "always (on disk before the answer), interval (may lose the last seconds on power loss), or both with a comma between")
	fs.IntVar(&f.n, "n", 0, "operations in a run; 0 = the workload's own")
	fs.StringVar(&f.scrip, "scrip", "", "`PATH` of the program scrip; absent = beside scripbench, then on PATH")
	fs.StringVar(&f.base, "dir", "", "`DIR`ectory to make the servers' files in, on the disk that is to be measured; absent = the one for temporary files")
	fs.Uint64Var(&f.seed, "seed", 1, "of what is drawn at random")
	fs.StringVarP(&f.output, "output", "o", "table", "table or json")
	fs.StringVar(&f.results, "results", "", "`DIR`ectory to write text files to, named by date and workload, and the JSON")
	fs.StringVar(&f.name, "name", "", "`WORD` that the files in --results have in their names behind the date")
	fs.StringVar(&f.plot, "plot", "", "`FILE` to draw an SVG to")
}

// ready checks what the flags say.
func (f *flags) ready(cmd *cobra.Command) (list []durability, err error) {
	f.progress = cmd.ErrOrStderr()
	if f.recipes, err = recipesNamed(f.systems); err != nil {
		return nil, err
	}
	if f.options.rate, err = parseRate(f.rateText); err != nil {
		return nil, err
	}
	for _, text := range f.durabilities {
		d := durability(strings.TrimSpace(text))
		if d != always && d != interval {
			return nil, usageError{fmt.Errorf("--durability %q must be always or interval", text)}
		}
		if !slices.Contains(list, d) {
			list = append(list, d)
		}
	}
	for _, c := range []struct {
		flag         string
		value, least int
	}{{"--callers", f.callers, 1}, {"--n", f.n, 0}, {"--runs", f.runs, 1}, {"--warmup", f.warmup, 0}} {
		if c.value < c.least {
			return nil, usageError{fmt.Errorf("%s must be at least %d", c.flag, c.least)}
		}
	}
	switch {
	case f.output != "table" && f.output != "json":
		return nil, usageError{fmt.Errorf("--output %q must be table or json", f.output)}
	case f.limit < 10*time.Millisecond:
		return nil, usageError{errors.New("--for must be at least 10ms")}
	case len(list) == 0:
		return nil, usageError{errors.New("--durability: give always, interval, or both")}
	}
	return list, nil
}

// readyForOne is ready for what is measured at one durability only.
func (f *flags) readyForOne(cmd *cobra.Command, what string) (durability, error) {
	list, err := f.ready(cmd)
	if err != nil {
		return "", err
	}
	if len(list) > 1 {
		return "", usageError{fmt.Errorf("--durability: %s measured at one", what)}
	}
	return list[0], nil
}
