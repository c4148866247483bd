package lease

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/golden"
)

// TestGoldenRecords: the values of keys, which servers and tools of one log read from each other.
func TestGoldenRecords(t *testing.T) {
	since := time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)
	for file, want := range map[string]any{
		"lease.json": &record{Server: "a", Nonce: "71c1e9a6-0b0f-4a43-8a3a-6d5c2f1f9b11", Since: since, Started: since.Add(-time.Hour)},
		"lock.json":  &Note{By: "a backup on host-1", Since: since, Nonce: "0f4b1f0e-6a1a-4bb4-9a51-9d8f0c6a7f20"},
	} {
		encoded, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got := reflect.New(reflect.TypeOf(want).Elem()).Interface()
		if err := json.Unmarshal(golden.Bytes(t, file, encoded), got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is decoded as %+v, %v; expected %+v", file, got, err, want)
		}
	}
}
