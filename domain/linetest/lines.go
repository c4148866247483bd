// Package linetest has command lines for the tests of domain and domain/wire. It has no state.
package linetest

import (
	"encoding/json"
	"fmt"
	"strings"
)

// With returns a line with fields added or, where the name is there already, replaced.
func With(base, name, raw string) string {
	var m map[string]json.RawMessage
	if err := json.Unmarshal([]byte(base), &m); err != nil {
		panic(err)
	}
	if raw == "" {
		delete(m, name)
	} else {
		m[name] = json.RawMessage(raw)
	}
	// By hand: package json would refuse the values that are to be refused.
	var b strings.Builder
	b.WriteByte('{')
	for k, v := range m {
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:%s", k, v)
	}
	return b.String() + "}"
}

// Valid lines, one of each shape.
const (
	Claim  = `{"id":"a","type":"claim","campaign":"s","customer_id":"ann"}`
	Redeem = `{"id":"a","type":"redeem","code":"AAAA-BBBB-CCCC","order_id":"o"}`
	Create = `{"id":"a","type":"create_campaign","campaign":"s","codes":5}`
	Update = `{"id":"a","type":"update_campaign","campaign":"s"}`
	Remind = `{"id":"a","type":"remind","campaign":"s","customer_id":"ann","kind":"opens","before":"1m"}`
	Import = `{"id":"a","type":"import_codes","campaign":"s","codes":["ABC-1"],"weak_codes":true}`
	Extend = `{"id":"a","type":"extend","code":"x","expires_at":"2026-11-27T00:00:00Z"}`
	Expire = `{"id":"a","type":"expire","campaign":"s","through":"2026-11-27T00:00:00Z"}`
	Due    = `{"id":"a","type":"remind_due","campaign":"s","kind":"opens","due_at":"2026-11-27T00:00:00Z","through_r":1}`
)
