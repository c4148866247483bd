package replay

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// With a mask no code of the log is left in what is exported, in any column or line, and the same code has the same mask.
func TestMaskedCodes(t *testing.T) {
	r := newRig(t)
	r.work()
	r.Write(0, `{"type":"codes.imported","campaign":"`+campaigns[0]+`","at":"@","codes":["IMPORTED-1","IMPORTED-2"]}`,
		`{"type":"command.rejected","campaign":"`+campaigns[0]+`","at":"@","sequence":3,"line":2,"reason":"not JSON","payload":"{\"code\":\"QUOTED-1\""}`,
		`{"type":"coupon.voided","campaign":"`+campaigns[0]+`","at":"@","n":1,"code":"VOIDED-1","status":"voided","new_field":"UNKNOWN-1"}`)
	secrets := []string{"IMPORTED-1", "IMPORTED-2", "QUOTED-1", "VOIDED-1", "UNKNOWN-1"}
	var plain []Event
	r.run(collect(&plain), Options{})
	claimed := make(map[string]int)
	for _, e := range plain {
		if e.Code != "" {
			secrets = append(secrets, e.Code)
			claimed[e.Code]++
		}
	}
	key := filepath.Join(t.TempDir(), "mask.key")
	mask, err := OpenMask(key)
	streamtest.Must(t, err)
	if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v", info, err)
	}
	again, err := OpenMask(key)
	if err != nil || again.Code("A") != mask.Code("A") || mask.Code("A") == mask.Code("B") || mask.Code("") != "" {
		t.Errorf("the key opened again: %v", err)
	}
	for _, format := range []Format{NDJSON, CSV} {
		var out bytes.Buffer
		r.run(Stream(&out, format), Options{Filter: Filter{Mask: mask}})
		for _, code := range secrets {
			if strings.Contains(out.String(), code) {
				t.Errorf("%s: %s is there", format, code)
			}
		}
		if lines := strings.Count(out.String(), "\n"); format == NDJSON && lines != len(plain) {
			t.Errorf("%d lines, want %d", lines, len(plain))
		}
	}
	masked := make(map[string]int)
	var events []Event
	r.run(collect(&events), Options{Filter: Filter{Mask: mask}})
	for i, e := range events {
		var line wire.Event
		if err := wire.ParseEvent(e.Raw, &line); err != nil || line.Code != e.Code || line.Type != plain[i].Type || line.At != plain[i].At || line.CustomerID != plain[i].CustomerID {
			t.Errorf("line %s, event %+v: %v", e.Raw, e.Event, err)
		}
		if e.Code != "" {
			masked[e.Code]++
		}
	}
	for code, n := range claimed {
		if masked[mask.Code(code)] != n {
			t.Errorf("%s is there %d times, its mask %d times", code, n, masked[mask.Code(code)])
		}
	}

	short := filepath.Join(t.TempDir(), "short")
	streamtest.Must(t, os.WriteFile(short, []byte("123456789012345\n"), 0o600))
	if _, err := OpenMask(short); err == nil || !strings.Contains(err.Error(), "15 bytes") {
		t.Errorf("a short key: %v", err)
	}
}

// What a spreadsheet would take for a formula starts with a quote, which Plain takes off.
func TestFormulas(t *testing.T) {
	r := newRig(t)
	r.Write(0, `{"type":"coupon.claimed","campaign":"`+campaigns[0]+`","at":"@","n":1,"code":"-A","customer_id":"=HYPERLINK(\"http://evil\")","id":"+1"}`,
		`{"type":"coupon.voided","campaign":"`+campaigns[0]+`","at":"@","n":1,"code":"A","reason":"\t=1","status":"voided","id":"-x"}`)
	for format, want := range map[Format][]string{
		CSV: {"'=HYPERLINK(\"http://evil\")", "'-A", "'+1", "'\t=1", "'-x"},
	} {
		var out bytes.Buffer
		r.run(Stream(&out, format), Options{})
		rows, err := csv.NewReader(&out).ReadAll()
		if err != nil || len(rows) != 3 {
			t.Fatalf("%d rows, %v", len(rows), err)
		}
		at := func(row int, column string) string {
			for i, c := range Columns {
				if c.Name == column {
					return rows[row][i]
				}
			}
			return "no such column"
		}
		got := []string{at(1, "customer_id"), at(1, "code"), at(1, "id"), at(2, "reason"), at(2, "id")}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: got %q, want %q", format, got[i], want[i])
			}
		}
		if at(1, "n") != "1" || at(1, "type") != "coupon.claimed" || !strings.HasPrefix(at(1, "raw"), "{") {
			t.Errorf("%s: row %q", format, rows[1])
		}
	}
	for _, text := range []string{"", "a", "'", "''a", "'=1", "=1", "-", "\t", "@SUM(A1)"} {
		if safe := Harmless(text); Plain(safe) != text || safe != "" && strings.ContainsRune("=+-@\t\r\n", rune(safe[0])) {
			t.Errorf("%q is %q, and %q", text, safe, Plain(safe))
		}
	}
	if Harmless("") != "" || Harmless("\r=1") != "'\r=1" || Harmless("@x") != "'@x" || Harmless("a=1") != "a=1" {
		t.Error("texts that are no formula, or hidden ones")
	}
}

// With customers, the mask replaces their ids too, and differently from codes. No field of any event that is named after a
// code or a customer is left out.
func TestCustomersAreMasked(t *testing.T) {
	r := newRig(t)
	r.Write(0, `{"type":"coupon.claimed","campaign":"`+campaigns[0]+`","at":"@","n":1,"code":"ABCD","customer_id":"ABCD"}`)
	for _, customers := range []bool{false, true} {
		mask := NewMask([32]byte{1}, customers)
		var out bytes.Buffer
		r.run(Stream(&out, NDJSON), Options{Filter: Filter{Mask: mask}})
		if strings.Contains(out.String(), `"ABCD"`) == customers || !strings.Contains(out.String(), mask.Code("ABCD")) || !strings.Contains(out.String(), mask.Customer("ABCD")) {
			t.Errorf("customers %v: %s", customers, &out)
		}
	}
	checked := 0
	for kind := range wire.Events() {
		for _, f := range kind.Spec().Fields {
			name := f.String()
			if !strings.Contains(name, "customer") && !strings.Contains(name, "code") && name != "payload" && name != "sample" {
				continue
			}
			for _, value := range []string{`"ABCD"`, `["ABCD"]`} {
				e := Event{Raw: []byte(`{"type":"` + kind.String() + `","campaign":"c","at":"2030-01-01T00:00:00Z","` + name + `":` + value + `}`)}
				if wire.ParseEvent(e.Raw, &e.Event) != nil || !strings.Contains(string(e.AppendJSON(nil)), "ABCD") {
					continue // the field is no such value
				}
				NewMask([32]byte{1}, true).event(&e)
				checked++
				for _, c := range Columns {
					if text := fmt.Sprintf("%s", c.value(&e)); strings.Contains(text, "ABCD") {
						t.Errorf("%s of %s is not masked in column %s: give it a secret in the table of fields: %s", name, kind, c.Name, text)
					}
				}
			}
		}
	}
	if checked < 10 {
		t.Errorf("%d fields were masked", checked)
	}
	if m := NewMask([32]byte{1}, true); m.Customer("x") == m.Code("x") || m.Customer("x") == NewMask([32]byte{2}, true).Customer("x") || m.Customer("") != "" {
		t.Error("equal masks of different texts")
	}
}
