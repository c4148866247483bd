package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/client"
	"github.com/seed-4a2410e3/scrip/streams/natsx"
	"github.com/seed-4a2410e3/scrip/streams/ops"
)

// busyPause is how long a read waits after a server had too many of its kind.
const busyPause = time.Second

// page requests an action once, with the timeout. A read that a server has no room for is requested again until then.
func (m *Main) page(ctx context.Context, s *session, a *ops.Action, given fields) (answer json.RawMessage, err error) {
	ctx, cancel := s.bounded(ctx, m.global.timeout)
	defer cancel()
	for {
		err = s.ask(ctx, a.Name, given, &answer)
		var no *client.RefusedError
		if !a.Reads || !errors.As(err, &no) || no.Outcome.Refusal != ops.Overloaded || natsx.Pause(ctx, busyPause) != nil {
			return answer, err
		}
	}
}

// whole requests an action. Of a list it goes on until its limit is reached or the list ends: a server ends a page after a second where
// no index has what is wanted. With an error comes what was found before it, and where to go on; nil = nothing.
func (m *Main) whole(ctx context.Context, s *session, a *ops.Action, given fields) (json.RawMessage, error) {
	first, err := m.page(ctx, s, a, given)
	var all map[string]json.RawMessage
	var list ops.Page[json.RawMessage]
	if err != nil || json.Unmarshal(first, &all) != nil || all["items"] == nil || json.Unmarshal(first, &list) != nil {
		return first, err
	}
	for limit := limitOf(a, given); err == nil && list.Next != "" && len(list.Items) < limit; {
		further := maps.Clone(given)
		further["after"], further["limit"] = list.Next, limit-len(list.Items)
		var answer json.RawMessage
		var part ops.Page[json.RawMessage]
		if answer, err = m.page(ctx, s, a, further); err == nil {
			if err = json.Unmarshal(answer, &part); err == nil {
				list.Items, list.Next, list.Looked = append(list.Items, part.Items...), part.Next, part.Looked
			}
		}
	}
	for name, value := range map[string]any{"items": list.Items, "next": list.Next, "looked": list.Looked} {
		if all[name], _ = json.Marshal(value); value == "" { // texts and JSON: it never fails
			delete(all, name)
		}
	}
	answer, _ := json.Marshal(all) // likewise
	return answer, err
}

// limitOf is the most entries of a page.
func limitOf(a *ops.Action, given fields) int {
	for i := range a.Fields {
		if f := &a.Fields[i]; f.Name == "limit" {
			limit, _ := strconv.Atoi(fmt.Sprint(given["limit"]))
			if given["limit"] == nil {
				limit, _ = strconv.Atoi(f.Default())
			}
			return limit
		}
	}
	return 0
}

// instants are the flags of the times that were given, such as -24h: the next page is of the same list only with the same instants.
func instants(given fields) (flags string) {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if at, is := given[name].(time.Time); is {
			flags += "--" + flagOf(name) + " " + at.UTC().Format(time.RFC3339Nano) + " "
		}
	}
	return strings.TrimLeft(flags, " ")
}
