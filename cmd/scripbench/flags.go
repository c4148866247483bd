package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
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

func (f *flags) add(fs *pflag.FlagSet) {
	fs.StringSliceVar(&f.durabilities, "durability", []string{string(always)}, "always (on disk before the answer), interval (may lose the last seconds on power loss), or both separated by a comma")
	fs.IntVar(&f.n, "n", 0, "operations in a run; 0 = the workload's own")
	fs.StringVar(&f.scrip, "scrip", "", "`PATH` of the program scrip; absent = beside scripbench, then on PATH")
	fs.StringVar(&f.base, "dir", "", "`DIR`ectory for the servers' files, on the disk that is to be measured; absent = the one for temporary files")
	fs.Uint64Var(&f.seed, "seed", 1, "seed of random choices")
	fs.StringVarP(&f.output, "output", "o", "table", "table or json")
	fs.StringVar(&f.results, "results", "", "`DIR`ectory to write text files to, named by date and workload, and the JSON")
	fs.StringVar(&f.name, "name", "", "`WORD` that the names of the files in --results have after the date")
	fs.StringVar(&f.plot, "plot", "", "`FILE` to draw an SVG to")
}

// addSystems adds the flag that chooses among recipes.
func (f *flags) addSystems(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.systems, "systems", nil, "some of the systems, separated by commas; absent = all")
}

func (f *flags) addRuns(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.runs, "runs", 3, "runs of each system")
}

// systemsFlag is what named calls a wrong name of a system.
const systemsFlag = "--systems: there is no %q; there are %s"

// named finds what has one of the names, all if none is given. wrong is the format of the error, for the wrong name and
// all names.
func named[T any](all []T, name func(T) string, names []string, wrong string) ([]T, error) {
	if len(names) == 0 {
		return all, nil
	}
	known := each(all, name)
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, usageError{fmt.Errorf(wrong, n, strings.Join(known, ", "))}
		}
	}
	var found []T
	for _, one := range all {
		if slices.Contains(names, name(one)) {
			found = append(found, one)
		}
	}
	return found, nil
}

// ready checks the flags.
func (f *flags) ready(cmd *cobra.Command) (list []durability, err error) {
	f.progress = cmd.ErrOrStderr()
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

// command completes a command that measures one thing at one durability: n things by default. measure fills the report
// and returns its text for people.
func (f *flags) command(cmd *cobra.Command, things string, n int, measure func(context.Context, durability, *Report) (func(io.Writer) error, error)) *cobra.Command {
	f.add(cmd.Flags())
	cmd.Args = cobra.NoArgs
	cmd.Flags().Lookup("n").Usage = things + "; 0 = " + num(n)
	f.callers, f.limit, f.runs = 1, settleWithin, max(1, f.runs)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		list, err := f.ready(cmd)
		if err != nil {
			return err
		}
		if len(list) > 1 {
			return usageError{fmt.Errorf("--durability: %s measures at one", cmd.Name())}
		}
		if f.n == 0 {
			f.n = n
		}
		report := newReport(f.base)
		text, err := measure(cmd.Context(), list[0], &report)
		if err != nil {
			return err
		}
		if f.output == "table" {
			if err := whole(cmd.OutOrStdout(), report, text); err != nil {
				return err
			}
		}
		if err := f.keep(report, report.kind(), text); err != nil {
			return err
		}
		return f.finish(cmd, report)
	}
	return cmd
}

func newReport(base string) Report {
	return Report{Version: version, Date: time.Now(), Machine: thisMachine(base)}
}

// name of a table's file, without date.
func (t Table) name() string {
	name := t.Workload + "-" + string(t.Durability)
	if t.OpenLoop != "" {
		name += "-open-loop"
	}
	return name
}

// kind names a report's JSON file.
func (r Report) kind() string {
	switch {
	case r.Growth != nil:
		return "growth-" + string(r.Growth.Durability)
	case r.Restart != nil:
		return "restart-" + string(r.Restart.Durability)
	case r.Projections != nil:
		return "tables"
	case r.Due != nil:
		return r.Due.Job + "-" + string(r.Due.Durability)
	case r.Pending != nil:
		return "pending-" + string(r.Pending.Durability)
	}
	kind := "run"
	for i, t := range r.Tables {
		if i == 0 && t.OpenLoop != "" {
			kind = "open-loop"
		}
		if !strings.Contains(kind, string(t.Durability)) {
			kind += "-" + string(t.Durability)
		}
	}
	return kind
}

// path of a result. An earlier result of the same day is replaced.
func (f *flags) path(r Report, name string) string {
	if f.name != "" {
		name = f.name + "-" + name
	}
	return filepath.Join(f.results, r.Date.UTC().Format(time.DateOnly)+"-"+name)
}

// keep writes one table with date and machine to --results.
func (f *flags) keep(r Report, name string, text func(io.Writer) error) error {
	if f.results == "" {
		return nil
	}
	return atomicfile.WriteFunc(f.path(r, name+".txt"), 0o644, func(w *os.File) error { return whole(w, r, text) })
}

// whole writes date and machine, then a text.
func whole(w io.Writer, r Report, text func(io.Writer) error) error {
	p := page{w: w}
	p.head(r)
	p.printf("")
	return errors.Join(p.err, text(w))
}

// finish writes the whole report: as JSON and as a plot.
func (f *flags) finish(cmd *cobra.Command, r Report) error {
	if f.output == "json" {
		if err := json.NewEncoder(cmd.OutOrStdout()).Encode(r); err != nil {
			return err
		}
	}
	if f.results != "" {
		err := atomicfile.WriteFunc(f.path(r, r.kind()+".json"), 0o644, func(w *os.File) error { return json.NewEncoder(w).Encode(r) })
		if err != nil {
			return err
		}
	}
	if f.plot != "" {
		return drawFile(f.plot, r)
	}
	return nil
}
