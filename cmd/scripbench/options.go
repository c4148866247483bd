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
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/cmd/internal/cli"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/process"
	"github.com/seed-4a2410e3/scrip/cmd/scripbench/report"
	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

// options of a benchmark.
type options struct {
	recipes    []recipe
	durability string
	scrip      string // path of the program, "" = search for it
	base       string // where the servers' directories are made, "" = the directory for temporary files
	roles      string // of scrip where it is measured alone, "" = all
	n          int    // 0 = the workload's own
	runs       int
	limit      time.Duration
	// progress is for people who wait.
	progress io.Writer
	// grown is the growth of scrip's log in this round, for the limit of what is due.
	grown *grown
}

// grown is the growth of a log: payloads of messages.
type grown struct{ messages, bytes int }

// printf writes a line of progress.
func (o options) printf(format string, args ...any) { fmt.Fprintf(o.progress, format+"\n", args...) }

// head is that of a result of n operations or things, before its first run.
func (o options) head(name string, n int) report.Head {
	return report.Head{Name: name, Durability: report.Durability(o.durability), N: n, Load: process.Load()}
}

// measurement completes a command: work measures, and calls done with each result. n is the default of --n. Where all are
// the recipes that --systems chooses among, they are run --runs times.
func measurement(cmd *cobra.Command, n int, all []recipe, work func(ctx context.Context, o options, done func(report.Result) error) error) *cobra.Command {
	o := options{runs: 1}
	var systems []string
	var output, results, name string
	fs := cmd.Flags()
	fs.VarP(cli.Choice(&o.durability, string(report.Always), string(report.Always), string(report.Interval)), "durability", "",
		"always (on disk before the answer) or interval (may lose the last seconds on power loss)")
	fs.IntVar(&o.n, "n", n, "operations in a run, or things that are due or held; 0 = the workload's own")
	fs.StringVar(&o.scrip, "scrip", "", "`PATH` of the program scrip; absent = beside scripbench, then on PATH")
	fs.StringVar(&o.base, "dir", "", "`DIR`ectory for the servers' files, on the disk that is to be measured; absent = the one for temporary files")
	fs.VarP(cli.Choice(&output, "table", "table", "json"), "output", "o", "`FORMAT` of the result: table or json")
	fs.StringVar(&results, "results", "", "`DIR`ectory to write text files to, named by date and workload, and the JSON")
	fs.StringVar(&name, "name", "", "`WORD` that the names of the files in --results have after the date")
	if all != nil {
		fs.StringSliceVar(&systems, "systems", nil, "some of the systems, separated by commas; absent = all")
		fs.IntVar(&o.runs, "runs", 3, "runs of each system")
	}
	if cmd.Args == nil {
		cmd.Args = cli.NoArgs
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		o.progress = cmd.ErrOrStderr()
		if o.n < min(n, 1) {
			return cli.Usagef("--n must be at least %d", min(n, 1))
		}
		if o.runs < 1 {
			return cli.Usagef("--runs must be at least 1")
		}
		if o.recipes, err = named(all, recipeName, systems, "--systems: there is no %q; there are %s"); err != nil {
			return err
		}
		r := &report.Report{Version: version, Date: time.Now(), Machine: process.Machine(o.base)}
		keep := func(file string, write func(*os.File) error) error {
			if results == "" {
				return nil
			}
			if name != "" {
				file = name + "-" + file
			}
			return atomicfile.WriteFunc(filepath.Join(results, r.Date.UTC().Format(time.DateOnly)+"-"+file), 0o644, write)
		}
		// Each result is written as soon as it is complete. An earlier one of the same day is replaced.
		err = work(cmd.Context(), o, func(result report.Result) (err error) {
			r.Results = append(r.Results, result)
			switch {
			case output == "json":
			case len(r.Results) == 1:
				err = r.Write(cmd.OutOrStdout(), result)
			default:
				err = report.Write(cmd.OutOrStdout(), result)
			}
			return errors.Join(err, keep(result.FileName()+".txt", func(w *os.File) error { return r.Write(w, result) }))
		})
		if err != nil {
			return err
		}
		err = keep(cmd.Name()+"-"+o.durability+".json", func(w *os.File) error { return cli.JSON(w, r) })
		if output == "json" {
			err = errors.Join(err, cli.JSON(cmd.OutOrStdout(), r))
		}
		return err
	}
	return cmd
}

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
