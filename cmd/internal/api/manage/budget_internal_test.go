package manage

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-4a2410e3/scrip/streams/access"
)

// TestBudget: a thousand wrong codes at once get the burst and no more; the block ends; other addresses go on within what the
// key has; memory is bounded.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(nil)
		b.most = 4000
		page := access.Principal{ID: "p", Role: access.Producer, Public: true}
		try := func(p access.Principal, address string) bool {
			end, problem := b.begin(p, address)
			if problem == nil {
				end(true)
			}
			return problem == nil
		}
		var ends []func(bool)
		for range 1000 { // all in flight at once
			if end, problem := b.begin(page, "192.0.2.1:1"); problem == nil {
				ends = append(ends, end)
			}
		}
		if len(ends) != 10 {
			t.Fatalf("%d codes are in flight, want 10", len(ends))
		}
		for _, end := range ends {
			end(true)
		}
		time.Sleep(perAddress.block - time.Second)
		if try(page, "192.0.2.1:2") {
			t.Error("the block ended early")
		}
		time.Sleep(time.Second)
		if !try(page, "[::ffff:192.0.2.1]:3") {
			t.Error("the block does not end")
		}
		tried := 0
		for i := range 100_000 {
			if try(page, fmt.Sprintf("[2001:db8:%x:%x::%x]:9", i>>16, i&0xffff, i)) {
				tried++
			}
		}
		if tried > int(perPublic.burst) || tried < int(perPublic.burst)-10 || len(b.by) > b.most {
			t.Errorf("a public key tried %d codes from many addresses; %d triers are remembered", tried, len(b.by))
		}
		tried = 0
		for range 100_000 {
			if try(access.Principal{ID: "shop", Role: access.Producer}, "192.0.2.1:1") {
				tried++
			}
		}
		if tried != int(perKey.burst) {
			t.Errorf("another key tried %d codes, want %g", tried, perKey.burst)
		}
		for range 20_000 {
			if !try(access.Principal{Role: access.Operator}, "") {
				t.Fatal("the credentials have a budget")
			}
		}
	})
}
