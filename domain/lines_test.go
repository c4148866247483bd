package domain

import (
	"encoding/json"
	"fmt"
	"strings"
)

// with returns a claim line with fields added or, where the name is there already, replaced.
func with(base, name, raw string) string {
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

const (
	aClaim  = `{"id":"a","type":"claim","campaign":"s","customer_id":"ann"}`
	aRedeem = `{"id":"a","type":"redeem","code":"AAAA-BBBB-CCCC","order_id":"o"}`
	aCreate = `{"id":"a","type":"create_campaign","campaign":"s","codes":5}`
	anUpdt  = `{"id":"a","type":"update_campaign","campaign":"s"}`
	aRemind = `{"id":"a","type":"remind","campaign":"s","customer_id":"ann","kind":"opens","before":"1m"}`
	anImprt = `{"id":"a","type":"import_codes","campaign":"s","codes":["ABC-1"]}`
	anExtnd = `{"id":"a","type":"extend","code":"x","expires_at":"2026-11-27T00:00:00Z"}`
	anExpir = `{"id":"a","type":"expire","campaign":"s","through":"2026-11-27T00:00:00Z"}`
	aDue    = `{"id":"a","type":"remind_due","campaign":"s","kind":"opens","due_at":"2026-11-27T00:00:00Z","through_r":1}`
)
