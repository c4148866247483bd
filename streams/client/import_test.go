package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/client"
)

func newCodec() *code.Codec { return code.New([32]byte{7}) }

// numbered yields n codes.
func numbered(n int) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range n {
			if !yield(fmt.Sprintf(" code-%07d ", i)) {
				return
			}
		}
	}
}

func TestImportCodes(t *testing.T) {
	r := newRig(t, client.Options{})
	ctx := within(t)
	r.owner.SetFault(func(n int, _ []wire.Command) int { return min(n%4, 1) })
	const n = 10_000 // a dozen lines: what is parsed must take less time than a retry waits
	done := 0
	out, err := r.ImportCodes(ctx, "summer", numbered(n), func(d int) {
		if d <= done || d > n {
			t.Errorf("progress went from %d to %d", done, d)
		}
		done = d
	}, client.ID("import"))
	if err != nil || out.Status != wire.StatusImported || out.Count != n || done != n || out.ID != "import" {
		t.Fatalf("imported %+v, %v, progress %d", out, err, done)
	}
	seen := make(map[string]string)
	for _, cmd := range r.owner.Commands() {
		if size := len(cmd.AppendJSON(nil)); size > wire.MaxLine {
			t.Errorf("line %s has %d bytes", cmd.ID, size)
		}
		for _, c := range cmd.Codes {
			if other := seen[c]; other != "" && other != cmd.ID {
				t.Fatalf("code %s came in lines %s and %s", c, other, cmd.ID)
			}
			seen[c] = cmd.ID
		}
	}
	if len(seen) != n {
		t.Errorf("%d codes arrived, expected %d", len(seen), n)
	}
	// The same again, as after a crash: every line is a repeat.
	before := r.owner.Distinct()
	if out, err = r.ImportCodes(ctx, "summer", numbered(n), nil, client.ID("import")); err != nil || !out.Repeat {
		t.Errorf("imported again: %+v, %v", out, err)
	}
	if after := r.owner.Distinct(); after != before {
		t.Errorf("importing again had %d more effects", after-before)
	}
}

// TestOtherCodesUnderAKnownID: a corrected file under the id of the first one brings its codes, and a line that is equal to an
// earlier one of the same import is counted once.
func TestOtherCodesUnderAKnownID(t *testing.T) {
	r := newRig(t, client.Options{})
	ctx := within(t)
	arrived := func() map[string]bool {
		all := map[string]bool{}
		for _, cmd := range r.owner.Commands() {
			for _, c := range cmd.Codes {
				all[c] = true
			}
		}
		return all
	}
	files := [][]string{{"AAA-1", "AAA-2"}, {"AAA-1", "AAA-2", "AAA-3"}, {"AAA-3"}}
	for _, file := range files {
		out, err := r.ImportCodes(ctx, "summer", slices.Values(file), nil, client.ID("list"), client.WeakCodes())
		if err != nil || out.Refused() || out.Repeat || out.Count > uint64(len(file)) {
			t.Errorf("%v: %+v, %v", file, out, err)
		}
	}
	if got := arrived(); !got["AAA-3"] {
		t.Errorf("the code that was added did not arrive: %v", got)
	}

	if out, err := r.ImportCodes(ctx, "winter", numbered(5000), nil, client.ID("first")); err != nil || out.Count != 5000 {
		t.Fatalf("%+v, %v", out, err)
	}
	line := 0 // codes in a full line
	for _, cmd := range r.owner.Commands() {
		line = max(line, len(cmd.Codes))
	}
	twice := func(yield func(string) bool) {
		for range 2 {
			for c := range numbered(line) {
				if !yield(c) {
					return
				}
			}
		}
	}
	done := 0
	if out, err := r.ImportCodes(ctx, "winter", twice, func(d int) { done = d }, client.ID("again")); err != nil || out.Count != uint64(line) || done != 2*line {
		t.Errorf("a line twice: %+v, %v; %d of %d codes are answered", out, err, done, 2*line)
	}
}

func TestImportsThatEndEarly(t *testing.T) {
	r := newRig(t, client.Options{})
	ctx := within(t)
	if out, err := r.ImportCodes(ctx, "summer", slices.Values([]string(nil)), nil); err != nil || out.Refusal != wire.Invalid {
		t.Errorf("no codes: %+v, %v", out, err)
	}
	if out, err := r.ImportCodes(ctx, "summer", numbered(1), nil, client.ID(strings.Repeat("i", 60))); err != nil || out.Refusal != wire.Invalid ||
		!strings.Contains(out.Message, "id") {
		t.Errorf("a long id: %+v, %v", out, err)
	}
	bad := slices.Values([]string{"GOOD-0001", "GOOD-0002", "no good", "GOOD-0003"})
	if out, err := r.ImportCodes(ctx, "summer", bad, nil); err != nil || out.Refusal != wire.Invalid || !strings.Contains(out.Message, "code 3") {
		t.Errorf("a bad code: %+v, %v", out, err)
	}
	if out, err := r.ImportCodes(ctx, "not a name", numbered(10_000), nil); err != nil || out.Refusal != wire.Invalid ||
		!strings.Contains(out.Message, "campaign") {
		t.Errorf("a bad campaign: %+v, %v", out, err)
	}

	arrived := r.arrivals()
	cancelled, cancel := context.WithCancel(ctx)
	go func() { <-arrived; cancel() }()
	_, err := r.ImportCodes(cancelled, "summer", numbered(100_000), nil, client.ID("cut"))
	var unknown *client.UnknownError
	if !errors.As(err, &unknown) || unknown.ID != "cut" || !errors.Is(err, context.Canceled) {
		t.Errorf("an import cut off: %v", err)
	}
}
