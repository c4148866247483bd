package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/seed-4a2410e3/scrip/streams/ops"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
)

// TestListed: what a table has of an entry's values. Texts are as they were given, without the escapes of JSON.
func TestListed(t *testing.T) {
	type entry struct {
		Text   string          `json:"text"`
		None   *string         `json:"none"`
		Number int             `json:"number"`
		Counts map[string]int  `json:"counts"`
		Object json.RawMessage `json:"object"`
	}
	var out bytes.Buffer
	page := ops.Page[entry]{Items: []entry{{`a&b<{c}> "no"`, nil, 3, map[string]int{"sold_out": 2, "invalid": 4}, json.RawMessage(`{"percent":20,"of":"all"}`)}}}
	streamtest.Must(t, listed[entry](&Main{Out: &out}, "text none number counts object absent")(page))
	for _, want := range []string{"\n" + `a&b<{c}> "no"  -  `, "  invalid 4, sold_out 2  ", `  {"percent":20,"of":"all"}  -` + "\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
