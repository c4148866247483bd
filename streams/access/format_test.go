package access

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/changelog"
	"github.com/seed-4a2410e3/scrip/streams/golden"
)

// The keys and values of changes are as the golden file has them: one line each.
func TestTheFormat(t *testing.T) {
	at, hash := "2026-11-20T09:01:00.123456789Z", strings.Repeat("0f", 32)
	records := []record{
		{Action: actionCreate, Key: "01h8z3qk", Role: "producer", Name: `Zoë <"shop">`, Campaigns: []string{"summer", "winter"}, Public: true, SHA256: hash, By: "local:ann@ops", At: at},
		{Action: actionCreate, Key: "01h8z3qm", Role: "operator", Name: "ann", Codes: true, Rate: 50, SHA256: hash, By: "bob", At: at},
		{Action: actionRotate, Key: "01h8z3qn", Replaces: "01h8z3qm", Until: "2026-11-21T09:01:00Z", SHA256: hash, By: "bob", At: at},
		{Action: actionRevoke, Key: "01h8z3qn", Also: []string{"01h8z3qm"}, By: "bob", At: at},
	}
	var lines bytes.Buffer
	for i := range records {
		value, err := records[i].encode()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&lines, "%s %s\n", changelog.Key(uint64(i+1)), value)
	}
	stored := bytes.Split(golden.Bytes(t, "bucket.golden", lines.Bytes()), []byte("\n"))
	st := newState()
	for i, want := range records {
		key, value, _ := bytes.Cut(stored[i], []byte(" "))
		if got, err := decode(value); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is read as %+v, %v", value, got, err)
		}
		if err := st.apply(changelog.Message{Key: string(key), Value: value}); err != nil {
			t.Errorf("%s: %v", value, err)
		}
	}
	if shop, ann := st.keys["01h8z3qk"], st.keys["01h8z3qm"]; !shop.Public || len(shop.Campaigns) != 2 || shop.Revoked || !ann.Revoked || ann.ReplacedBy != "01h8z3qn" {
		t.Errorf("%+v, %+v", shop, ann)
	}
}
