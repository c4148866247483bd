package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

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
	if r.Growth != nil {
		return "growth-" + string(r.Growth.Durability)
	}
	if r.Restart != nil {
		return "restart-" + string(r.Restart.Durability)
	}
	if r.Projections != nil {
		return "tables"
	}
	if r.Due != nil {
		return r.Due.Job + "-" + string(r.Due.Durability)
	}
	if r.Pending != nil {
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

// path of a result. What was measured earlier on the same day is replaced.
func (f *flags) path(r Report, name string) string {
	if f.name != "" {
		name = f.name + "-" + name
	}
	return filepath.Join(f.results, r.Date.UTC().Format(time.DateOnly)+"-"+name)
}

// keep writes one table with its circumstances.
func (f *flags) keep(r Report, name string, write func(*os.File) error) error {
	if f.results == "" {
		return nil
	}
	return atomicfile.WriteFunc(f.path(r, name+".txt"), 0o644, func(w *os.File) error {
		headText(w, r)
		fmt.Fprintln(w)
		return write(w)
	})
}

// show prints a report that has one table for people, keeps that table, and finishes.
func (f *flags) show(cmd *cobra.Command, r Report, text func(io.Writer) error) error {
	if f.output == "table" {
		out := cmd.OutOrStdout()
		headText(out, r)
		fmt.Fprintln(out)
		if err := text(out); err != nil {
			return err
		}
	}
	if err := f.keep(r, r.kind(), func(w *os.File) error { return text(w) }); err != nil {
		return err
	}
	return f.finish(cmd, r)
}

// finish writes what is made of the whole report.
func (f *flags) finish(cmd *cobra.Command, r Report) error {
	asJSON := func(w *os.File) error { return json.NewEncoder(w).Encode(r) }
	if f.output == "json" {
		if err := json.NewEncoder(cmd.OutOrStdout()).Encode(r); err != nil {
			return err
		}
	}
	if f.results != "" {
		kind := r.kind()
		if err := atomicfile.WriteFunc(f.path(r, kind+".json"), 0o644, asJSON); err != nil {
			return err
		}
	}
	if f.plot != "" {
		return drawFile(f.plot, r)
	}
	return nil
}

func drawFile(path string, r Report) error {
	return atomicfile.WriteFunc(path, 0o644, func(w *os.File) error { return plotReport(w, r) })
}
