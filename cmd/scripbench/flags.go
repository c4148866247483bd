package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/process"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

// options of a benchmark.
type options struct {
	recipes []recipe
	scrip   string // path of the program, "" = search for it
	base    string // where the servers' directories are made, "" = the directory for temporary files
	roles   string // of scrip where it is measured alone, "" = all
	callers int
	n       int // 0 = the workload's own
	runs    int
	warmup  int
	limit   time.Duration
	rate    float64 // of an open loop; 0 = closed
	seed    uint64
	// progress is for people who wait.
	progress io.Writer
}

// printf writes a line of progress.
func (o options) printf(format string, args ...any) {
	fmt.Fprintf(o.progress, format+"\n", args...)
}

// rarely returns a function that writes a line of progress if none was written for a while.
func (o options) rarely() func(format string, args ...any) {
	var mu sync.Mutex
	last := time.Now()
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); now.Sub(last) > reportEvery {
			last = now
			o.printf(format, args...)
		}
	}
}

// reportEvery is how often the progress of what takes minutes is reported.
const reportEvery = 10 * time.Second

// flags that the commands share.
type flags struct {
	options
	durability string
	systems    []string
	output     string
	results    string
	name       string
}

func (f *flags) add(fs *pflag.FlagSet) {
	f.callers = 1
	fs.VarP(cli.Choice(&f.durability, string(report.Always), string(report.Always), string(report.Interval)), "durability", "",
		"always (on disk before the answer) or interval (may lose the last seconds on power loss)")
	fs.IntVar(&f.n, "n", 0, "operations in a run; 0 = the workload's own")
	fs.StringVar(&f.scrip, "scrip", "", "`PATH` of the program scrip; absent = beside scripbench, then on PATH")
	fs.StringVar(&f.base, "dir", "", "`DIR`ectory for the servers' files, on the disk that is to be measured; absent = the one for temporary files")
	fs.Uint64Var(&f.seed, "seed", 1, "seed of random choices")
	fs.VarP(cli.Choice(&f.output, "table", "table", "json"), "output", "o", "`FORMAT` of the result: table or json")
	fs.StringVar(&f.results, "results", "", "`DIR`ectory to write text files to, named by date and workload, and the JSON")
	fs.StringVar(&f.name, "name", "", "`WORD` that the names of the files in --results have after the date")
}

// addSystems adds the flag that chooses among recipes.
func (f *flags) addSystems(fs *pflag.FlagSet) {
	fs.StringSliceVar(&f.systems, "systems", nil, "some of the systems, separated by commas; absent = all")
}

func (f *flags) addRuns(fs *pflag.FlagSet) { fs.IntVar(&f.runs, "runs", 3, "runs of each system") }

// systemsFlag is what named calls a wrong name of a system.
const systemsFlag = "--systems: there is no %q; there are %s"

// named finds what has one of the names, all if none is given. wrong is the format of the error, for the wrong name and
// all names.
func named[T any](all []T, name func(T) string, names []string, wrong string) (found []T, err error) {
	known := report.Each(all, name)
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, cli.Usagef(wrong, n, strings.Join(known, ", "))
		}
	}
	for _, one := range all {
		if len(names) == 0 || slices.Contains(names, name(one)) {
			found = append(found, one)
		}
	}
	return found, nil
}

// lines has a line for each.
func lines[T any](list []T, line func(T) string) string {
	return strings.Join(report.Each(list, line), "\n")
}

// ready checks the flags.
func (f *flags) ready(cmd *cobra.Command) error {
	f.progress = cmd.ErrOrStderr()
	for _, c := range []struct {
		flag         string
		value, least int
	}{{"--callers", f.callers, 1}, {"--n", f.n, 0}, {"--runs", f.runs, 1}, {"--warmup", f.warmup, 0}} {
		if c.value < c.least {
			return cli.Usagef("%s must be at least %d", c.flag, c.least)
		}
	}
	return nil
}

// command completes a command that measures one thing: n things by default.
func (f *flags) command(cmd *cobra.Command, things string, n int, one func(context.Context, report.Durability) (report.Result, error)) *cobra.Command {
	f.add(cmd.Flags())
	f.runs = max(1, f.runs)
	cmd.Args = cli.NoArgs
	cmd.Flags().Lookup("n").Usage = things + "; 0 = " + report.Num(n)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.ready(cmd); err != nil {
			return err
		}
		if f.n == 0 {
			f.n = n
		}
		return f.measure(cmd, func(ctx context.Context, d report.Durability, done func(report.Result) error) error {
			result, err := one(ctx, d)
			if err != nil {
				return err
			}
			return done(result)
		})
	}
	return cmd
}

// measure measures and writes each result as soon as it is complete: to standard output, and to
// --results, where an earlier result of the same day is replaced. At last it writes the JSON of all.
func (f *flags) measure(cmd *cobra.Command, work func(ctx context.Context, d report.Durability, done func(report.Result) error) error) error {
	r := &report.Report{Version: version, Date: time.Now(), Machine: process.Machine(f.base)}
	done := func(result report.Result) error {
		write := r.Write
		if len(r.Results()) > 0 {
			write = report.Write
		}
		r.Add(result)
		if f.output == "table" {
			if err := write(cmd.OutOrStdout(), result); err != nil {
				return err
			}
		}
		return f.keep(r, report.FileName(result), func(w *os.File) error { return r.Write(w, result) })
	}
	if err := work(cmd.Context(), report.Durability(f.durability), done); err != nil {
		return err
	}
	err := f.keep(r, r.FileName(), func(w *os.File) error { return cli.JSON(w, r) })
	if f.output == "json" {
		err = errors.Join(err, cli.JSON(cmd.OutOrStdout(), r))
	}
	return err
}

// keep writes a file to --results.
func (f *flags) keep(r *report.Report, name string, write func(*os.File) error) error {
	if f.results == "" {
		return nil
	}
	if f.name != "" {
		name = f.name + "-" + name
	}
	return atomicfile.WriteFunc(filepath.Join(f.results, r.Date.UTC().Format(time.DateOnly)+"-"+name), 0o644, write)
}
