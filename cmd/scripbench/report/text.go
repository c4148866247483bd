package report

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"text/template"
	"unicode/utf8"
)

// busyNeighbours is the part of the CPU above which other programs spoil the numbers; the kernel alone has a few percent.
const busyNeighbours = 0.15

//go:embed text.tmpl
var textSource string

// texts has a template for each type of result.
var texts = template.Must(template.New("").Funcs(template.FuncMap{
	"upper": strings.ToUpper, "thousands": Thousands, "seconds": Seconds, "micro": Micro, "ratio": ratioText, "mib": mebibytes,
	"num":    func(n any) string { return Thousands(float64(reflect.ValueOf(n).Int())) },
	"tenths": func(s float64) string { return fmt.Sprintf("%.1f s", s) },
	"each":   perOperation,
	"bytes":  func(bytes int64, n int) string { return fmt.Sprintf("%.1f", float64(bytes)/float64(n)) },
	"rates":  func(runs []Run) string { return between(runs, func(r Run) float64 { return r.Rate }, Thousands) },
	"times":  func(runs []Run) string { return between(runs, func(r Run) float64 { return r.Seconds }, Seconds) },
}).Parse(textSource))

// Write writes date, version and machine, then results.
func (r *Report) Write(w io.Writer, results ...Result) error {
	m := r.Machine
	_, err := fmt.Fprintf(w, "%s, scrip %s\n%d cores of %s, %s of memory, %s, files on %s, %s\nLoad generator, clients and servers share the machine.\n",
		r.Date.UTC().Format("2006-01-02 15:04 UTC"), r.Version, m.Cores, m.CPU, m.Memory, m.System, m.Filesystem, m.Go)
	return errors.Join(err, Write(w, results...))
}

// Write writes results for people, each after an empty line.
func Write(w io.Writer, results ...Result) error {
	for _, result := range results {
		var text strings.Builder
		if err := texts.ExecuteTemplate(&text, fmt.Sprintf("%T", result), result); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "\n%s", aligned(text.String())); err != nil {
			return err
		}
	}
	return nil
}

// aligned aligns the columns of each table, which are consecutive lines with tabs: the first and last column to the left,
// numbers to the right.
func aligned(text string) string {
	var b strings.Builder
	var table [][]string
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n")+"\n", "\n") {
		cells := strings.Split(line, "\t")
		if len(cells) > 1 {
			table = append(table, cells)
			continue
		}
		columns(&b, table)
		table = nil
		b.WriteString(line + "\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func columns(b *strings.Builder, table [][]string) {
	widths := map[int]int{}
	for _, row := range table {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range table {
		text := fmt.Sprintf("%-*s", widths[0], row[0])
		for i, cell := range row[1 : len(row)-1] {
			text += fmt.Sprintf("  %*s", widths[i+1], cell)
		}
		b.WriteString(strings.TrimRight(text+"  "+row[len(row)-1], " ") + "\n")
	}
}

// Runs is the most that a system had.
func (t *Table) Runs() (n int) {
	for _, s := range t.Systems {
		n = max(n, len(s.Runs))
	}
	return n
}

// Busy warns of runs during which other programs used much of the CPU.
func (t *Table) Busy() string {
	others, all := 0.0, 0.0
	for _, s := range t.Systems {
		for _, r := range s.Runs {
			others += r.OthersCPU
			all += r.Watched * float64(runtime.NumCPU())
		}
	}
	// A moment is too short, because CPU time is counted in hundredths of a second.
	if all < 1 || others/all <= busyNeighbours {
		return ""
	}
	return fmt.Sprintf("BUSY MACHINE: other programs had %.0f%% of its CPU during the runs; measure again when it is quiet\n", others/all*100)
}

// between is the range of a number over the runs.
func between(runs []Run, of func(Run) float64, text func(float64) string) string {
	least, most := math.Inf(1), 0.0
	for _, r := range runs {
		least, most = min(least, of(r)), max(most, of(r))
	}
	return text(least) + "-" + text(most)
}

// Thousands writes a number with commas: 1,234,567.
func Thousands(v float64) string {
	digits := strconv.FormatInt(int64(math.Round(math.Abs(v))), 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if v <= -0.5 {
		digits = "-" + digits
	}
	return digits
}

// Num is a whole number with commas.
func Num[T int | int64](n T) string { return Thousands(float64(n)) }

// Seconds writes seconds in the unit that suits them.
func Seconds(s float64) string {
	switch a := math.Abs(s); {
	case a < 10 && s < 0:
		return "-" + Micro(int64(-s*1e6))
	case a < 10:
		return Micro(int64(s * 1e6))
	}
	return fmt.Sprintf("%.1fs", s)
}

// Micro writes microseconds in the unit that suits them.
func Micro(us int64) string {
	switch ms := float64(us) / 1e3; {
	case us < 1e3:
		return strconv.FormatInt(us, 10) + "us"
	case us < 10e3:
		return fmt.Sprintf("%.1fms", ms)
	case us < 10e6:
		return fmt.Sprintf("%.0fms", ms)
	default:
		return fmt.Sprintf("%.1fs", ms/1e3)
	}
}

// ratioText is a ratio with two significant digits.
func ratioText(r float64) string {
	switch {
	case r == 0:
		return "-"
	case r < 9.95:
		return strconv.FormatFloat(r, 'f', max(1, 1-int(math.Floor(math.Log10(r)))), 64) + "x"
	}
	return Thousands(r) + "x"
}

// perOperation is CPU time of one operation.
func perOperation(seconds float64, done int) string {
	if done == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1fus", seconds*1e6/float64(done))
}

func mebibytes(b int64) string {
	if b == 0 {
		return "-"
	}
	return Thousands(float64(b)/(1<<20)) + "MiB"
}
