package access

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/golden"
	"github.com/seed-4a2410e3/scrip/streams/registry"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// The keys and values of changes are as the golden file has them: one line each.
func TestTheFormat(t *testing.T) {
	at, hash := time.Date(2026, 11, 20, 9, 1, 0, 123456789, time.UTC), bytes.Repeat([]byte{0x0f}, 32)
	records := []record{
		{Action: actionCreate, Key: "01h8z3qk", New: &New{Name: `Zoë <"shop">`, Role: Producer, Campaigns: []string{"summer", "winter"}, Public: true, Origins: []string{"https://shop.example"}}, SHA256: hash},
		{Action: actionCreate, Key: "01h8z3qm", New: &New{Name: "ann", Role: Operator, Codes: true, Customers: true, Rate: 50}, SHA256: hash},
		{Action: actionRotate, Key: "01h8z3qn", Replaces: "01h8z3qm", Until: at.Add(24 * time.Hour), SHA256: hash},
		{Action: actionRevoke, Key: "01h8z3qn", Also: []string{"01h8z3qm"}},
	}
	var lines bytes.Buffer
	for i, r := range records {
		c := registry.Change[record]{Record: r, By: "local:ann@ops", At: at}
		streamtest.Must(t, c.Encode())
		fmt.Fprintf(&lines, "%s %s\n", registry.Key(uint64(i+1)), c.Value)
	}
	stored := bytes.Split(golden.Bytes(t, "bucket.golden", lines.Bytes()), []byte("\n"))
	f := open(t, nil).history.Fold()
	for i, want := range records {
		key, value, _ := bytes.Cut(stored[i], []byte(" "))
		if got := f.Apply(registry.Message{Key: string(key), Value: value}); got.Ignored != "" || !reflect.DeepEqual(got.Record, want) {
			t.Errorf("%s is read as %+v", value, got)
		}
	}
	if shop, ann := f.State.keys["01h8z3qk"], f.State.keys["01h8z3qm"]; !shop.Public || len(shop.Campaigns) != 2 || shop.Revoked || !ann.Revoked || ann.ReplacedBy != "01h8z3qn" {
		t.Errorf("%+v, %+v", shop, ann)
	}
}
