package replay

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// ofTheShop are the texts of events that the shop, or who sends a command, chooses freely. CONTRACT.md has them: no id of a customer
// belongs there.
var ofTheShop = []string{"id", "by", "request_id", "order_id", "attributes", "reason", "batch", "category", "prefix", "benefit", "zone"}

// fixed are the fields that have one of a few words; lanes write no other.
var fixed = []string{"kind", "priority", "status"}

// Every field of every event has the id of a customer in it, as far as it can have one. What a key without the right to customers gets
// has it in what the shop chooses alone; without that to codes a code likewise. What may quote anything takes both rights.
func TestMasksOfEveryField(t *testing.T) {
	const planted = "ABCD"
	masks := map[string]*Mask{"codes": NewMask([32]byte{1}, true, false), "customers": NewMask([32]byte{1}, false, true), "both": NewMask([32]byte{1}, true, true)}
	checked := map[string]int{}
	for kind := range wire.Events() {
		fields := []string{"id", "by", "request_id"}
		for _, f := range kind.Spec().Fields {
			fields = append(fields, f.String())
		}
		for _, name := range fields {
			if slices.Contains(fixed, name) {
				continue
			}
			for _, value := range []string{`"ABCD"`, `["ABCD"]`, `{"a":"ABCD"}`} {
				for what, mask := range masks {
					e := Event{Raw: []byte(`{"type":"` + kind.String() + `","campaign":"c","at":"2030-01-01T00:00:00Z","` + name + `":` + value + `,"unknown":"ABCD"}`)}
					if wire.ParseEvent(e.Raw, &e.Event) != nil || !strings.Contains(string(e.AppendJSON(nil)), planted) {
						continue // the field is no such value
					}
					checked[name]++
					mask.event(&e)
					shown := false
					for _, c := range Columns {
						shown = shown || strings.Contains(fmt.Sprintf("%s", c.value(&e)), planted)
					}
					may := slices.Contains(ofTheShop, name) || what == "customers" && (name == "code" || name == "codes") || what == "codes" && name == "customer_id"
					if shown != may {
						t.Errorf("%s of %s, masked for %s: shown %t, want %t: give it a secret in the table of fields, or say in the contract whose it is: %s", name, kind, what, shown, may, e.Raw)
					}
				}
			}
		}
	}
	for _, name := range append(slices.Clone(ofTheShop), "code", "codes", "customer_id", "payload", "sample") {
		if checked[name] == 0 {
			t.Errorf("no event had %s", name)
		}
	}
	page, err := os.ReadFile("../../domain/CONTRACT.md")
	streamtest.Must(t, err)
	if want := "`" + strings.Join(ofTheShop, " ") + "`"; !strings.Contains(string(page), want) {
		t.Errorf("CONTRACT.md lacks %s", want)
	}
	m := masks["both"]
	if m.Customer("x") == m.Code("x") || m.Customer("x") == NewMask([32]byte{2}, true, true).Customer("x") || m.Customer("x") != masks["customers"].Customer("x") || m.Customer("") != "" {
		t.Error("equal masks of different texts, or different ones of one")
	}
	if masks["codes"].String() == m.String() || masks["customers"].String() == m.String() {
		t.Error("masks of less have the same text: a replay would continue with another one")
	}
}
