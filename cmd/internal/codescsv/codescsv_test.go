package codescsv

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/projections/replay"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

func read(t *testing.T, text string) (codes []string, rejects []Reject, report Report) {
	t.Helper()
	report, err := Read(strings.NewReader(text), true,
		func(c string) error { codes = append(codes, c); return nil },
		func(r Reject) error { rejects = append(rejects, r); return nil })
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return codes, rejects, report
}

func TestRead(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       string
		report     Report
	}{
		{"one column", "AAA-1\nAAA-2\n", "AAA-1 AAA-2", Report{Rows: 2, Codes: 2}},
		{"no newline at the end", "AAA-1", "AAA-1", Report{Rows: 1, Codes: 1}},
		{"empty", "", "", Report{}},
		{"byte-order mark", "\ufeffAAA-1\n", "AAA-1", Report{Rows: 1, Codes: 1}},
		{"byte-order mark and header", "\ufeffcode\r\nAAA-1\r\n", "AAA-1", Report{Rows: 1, Codes: 1}},
		{"only a byte-order mark", "\ufeff", "", Report{}},
		{"CRLF", "AAA-1\r\nAAA-2\r\n", "AAA-1 AAA-2", Report{Rows: 2, Codes: 2}},
		{"empty rows", "\n\nAAA-1\n\n \n,,\nAAA-2\n\n", "AAA-1 AAA-2", Report{Rows: 2, Codes: 2}},
		{"header in any case", " CODE \nAAA-1\n", "AAA-1", Report{Rows: 1, Codes: 1}},
		{"other column", "n,Code,note\n1,AAA-1,x\n2,AAA-2,\n", "AAA-1 AAA-2", Report{Rows: 2, Codes: 2}},
		{"first column without header", "AAA-1,10%\nAAA-2\n", "AAA-1 AAA-2", Report{Rows: 2, Codes: 2}},
		{"semicolons", "id;code\n1;AAA-1\n", "AAA-1", Report{Rows: 1, Codes: 1}},
		{"tabs", "code\tid\nAAA-1\t1\n", "AAA-1", Report{Rows: 1, Codes: 1}},
		{"quotes", "\"AAA-1\",\"a, b\"\n", "AAA-1", Report{Rows: 1, Codes: 1}},
		{"stray quote", "AAA-1,5\" screen\n", "AAA-1", Report{Rows: 1, Codes: 1}},
		{"lower case", "aaa-1\n", "AAA-1", Report{Rows: 1, Codes: 1}},
		{"duplicates", "AAA-1\naaa-1\nAAA1\nAAA-2\n", "AAA-1 AAA-2", Report{Rows: 4, Codes: 2, Duplicates: 2}},
		{"bad rows", "AAA-1\nÄÄÄ\nA\nAAA-2\n", "AAA-1 AAA-2", Report{Rows: 4, Codes: 2, Rejected: 2}},
		{"row without the column", "id,code\n1,AAA-1\n2\n", "AAA-1", Report{Rows: 2, Codes: 1, Rejected: 1}},
	} {
		codes, _, report := read(t, c.text)
		if got := strings.Join(codes, " "); got != c.want || report != c.report {
			t.Errorf("%s: %q %+v, want %q %+v", c.name, got, report, c.want, c.report)
		}
	}
}

// TestOurOwnFiles: codes of an export, and of a file of printed ones, are read as they were, and none is a formula on
// the way.
func TestOurOwnFiles(t *testing.T) {
	codes := []string{"-AAA-1", "AAA-2", "--3B", "_C4"}
	var exported strings.Builder
	w := replay.NewCSVWriter(&exported)
	streamtest.Must(t, w.Write(Columns...))
	for i, c := range codes {
		streamtest.Must(t, w.Write((&Form{}).Fields(&Row{Campaign: "-1", N: uint32(i + 1), Code: c, CustomerID: "=1"})...))
	}
	streamtest.Must(t, w.Flush())
	for what, file := range map[string]string{"exported": exported.String(), "printed": string(AppendCodes(nil, "-1", 1, codes, true))} {
		if got, rejects, _ := read(t, file); !slices.Equal(got, codes) || len(rejects) > 0 {
			t.Errorf("%s: %q, %v\n%s", what, got, rejects, file)
		}
		for field := range strings.FieldsFuncSeq(file, func(c rune) bool { return c == ',' || c == '\n' }) {
			if strings.ContainsRune("=+-@", rune(field[0])) {
				t.Errorf("%s: field %q", what, field)
			}
		}
	}
}

func TestARejectNamesItsRowAndTheCorrection(t *testing.T) {
	_, rejects, _ := read(t, "\ufeffcode\r\n\r\nAAA-1\r\nA B C\r\n"+strings.Repeat("X", 200)+"\r\n")
	if len(rejects) != 2 || rejects[0].Row != 4 || rejects[1].Row != 5 {
		t.Fatalf("%+v", rejects)
	}
	if r := rejects[0]; r.Text != "A B C" || !strings.Contains(r.Reason, "remove it or write a hyphen") {
		t.Errorf("%+v", r)
	}
	if r := rejects[1]; len(r.Text) > 100 {
		t.Errorf("a long text is quoted in full: %+v", r)
	}
}

func TestAnUnclosedQuoteIsReported(t *testing.T) {
	codes, rejects, _ := read(t, "AAA-1\n\"AAA-2\nAAA-3\n")
	if len(codes) != 1 || len(rejects) != 1 || rejects[0].Row != 2 || !strings.Contains(rejects[0].Reason, "quote") {
		t.Fatalf("%v %+v", codes, rejects)
	}
}

func TestUTF16IsRefused(t *testing.T) {
	_, err := Read(strings.NewReader("\xff\xfeA\x00"), true, nil, nil)
	if err == nil || !strings.Contains(err.Error(), "UTF-8") {
		t.Fatal(err)
	}
}

func TestAnErrorOfYieldOrRejectEndsReading(t *testing.T) {
	stop := errors.New("stop")
	yes := func(string) error { return nil }
	if report, err := Read(strings.NewReader("AAA-1\nAAA-2\n"), true, func(string) error { return stop }, nil); !errors.Is(err, stop) || report.Codes != 1 {
		t.Errorf("%+v %v", report, err)
	}
	if report, err := Read(strings.NewReader("A\nAAA-2\n"), true, yes, func(Reject) error { return stop }); !errors.Is(err, stop) || report.Rejected != 1 {
		t.Errorf("%+v %v", report, err)
	}
}

func TestAMillionRows(t *testing.T) {
	const rows = 1_000_000
	pr, pw := io.Pipe()
	go func() {
		for i := range rows {
			if _, err := fmt.Fprintf(pw, "CODE-%07d,row %d\r\n", i%(rows-1000), i); err != nil {
				return
			}
		}
		_ = pw.Close()
	}()
	n := 0
	report, err := Read(pr, false, func(string) error { n++; return nil }, func(r Reject) error { return fmt.Errorf("rejected %+v", r) })
	if err != nil {
		t.Fatal(err)
	}
	if want := (Report{Rows: rows, Codes: rows - 1000, Duplicates: 1000}); report != want || n != want.Codes {
		t.Fatalf("%+v and %d codes, want %+v", report, n, want)
	}
}

// FuzzRead: for any file, no row is lost and all results can be imported.
func FuzzRead(f *testing.F) {
	for _, s := range []string{"code\nAAA-1\n", "\ufeffa;b\r\n\"x", "\xff\xfe", "\"\n\n\"\",", "AAA\tAAA\n\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var codes []string
		rejected := 0
		report, err := Read(strings.NewReader(text), true,
			func(c string) error { codes = append(codes, c); return nil },
			func(r Reject) error {
				rejected++
				if r.Row < 1 || r.Reason == "" {
					t.Errorf("%+v", r)
				}
				return nil
			})
		if err != nil {
			return
		}
		if report.Rows != report.Codes+report.Duplicates+report.Rejected || report.Codes != len(codes) || report.Rejected != rejected {
			t.Errorf("rows do not add up: %+v", report)
		}
		for i, c := range codes {
			if n, err := code.NormalizeImported(c); err != nil || n != c {
				t.Errorf("%q is not normalised: %q %v", c, n, err)
			}
			folded := code.FoldImported(c)
			if slices.ContainsFunc(codes[:i], func(o string) bool { return code.FoldImported(o) == folded }) {
				t.Errorf("%q came twice", c)
			}
		}
	})
}
