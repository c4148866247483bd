package lease

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"testing"
	"time"
)

var rewrite = flag.Bool("update", false, "write the golden files")

// TestGoldenRecords: the values of keys, which servers and tools of one log read from each other.
func TestGoldenRecords(t *testing.T) {
	since := time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)
	for file, want := range map[string]any{
		"testdata/lease.json": &record{Server: "a", Nonce: "71c1e9a6-0b0f-4a43-8a3a-6d5c2f1f9b11", Since: since, Started: since.Add(-time.Hour)},
		"testdata/lock.json":  &Note{By: "a backup on host-1", Since: since, Nonce: "0f4b1f0e-6a1a-4bb4-9a51-9d8f0c6a7f20"},
	} {
		encoded, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if *rewrite {
			if err := os.WriteFile(file, encoded, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		golden, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got := reflect.New(reflect.TypeOf(want).Elem()).Interface()
		if err := json.Unmarshal(golden, got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is decoded as %+v, %v; expected %+v", file, got, err, want)
		}
		if !bytes.Equal(encoded, golden) {
			t.Errorf("%s has other bytes than %s: after a release records need a format number, and it must rise; before one, run this test with -update", file, encoded)
		}
	}
}
