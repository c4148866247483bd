package access

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// TestBudget: a thousand wrong codes at once get the burst and no more; the block ends; other addresses go on within what the
// key has; memory is bounded.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newWrongCodes(&uses{})
		b.most = 4000
		page := Principal{ID: "p", Role: Producer, Public: true}
		client := func(address string) netip.Addr {
			a, _ := netip.ParseAddrPort(address)
			return a.Addr().Unmap()
		}
		try := func(p Principal, address string) bool {
			end, wait := b.Reserve(p, client(address))
			if wait == 0 {
				end(true)
			}
			return wait == 0
		}
		var ends []func(bool)
		for range 1000 { // all in flight at once
			if end, wait := b.Reserve(page, client("192.0.2.1:1")); wait == 0 {
				ends = append(ends, end)
			}
		}
		if len(ends) != 10 {
			t.Fatalf("%d codes are in flight, want 10", len(ends))
		}
		for _, end := range ends {
			end(true)
		}
		time.Sleep(perAddress.Block - time.Second)
		if try(page, "192.0.2.1:2") {
			t.Error("the block ended early")
		}
		time.Sleep(time.Second)
		if !try(page, "[::ffff:192.0.2.1]:3") {
			t.Error("the block does not end")
		}
		tried := 0
		for i := range 100_000 {
			if try(page, fmt.Sprintf("[2001:db8:%x:%x::%x]:9", i&0xffff, i>>16, i)) { // each a /64 of another /48
				tried++
			}
		}
		if tried > int(perPublic.Burst) || tried < int(perPublic.Burst)-10 || len(b.by) > b.most {
			t.Errorf("a public key tried %d codes from many addresses; %d triers are remembered", tried, len(b.by))
		}
		tried = 0
		for range 100_000 {
			if try(Principal{ID: "shop", Role: Producer}, "192.0.2.1:1") {
				tried++
			}
		}
		if tried != int(PerKey.Burst) {
			t.Errorf("another key tried %d codes, want %g", tried, PerKey.Burst)
		}
		for range 20_000 {
			if !try(Principal{Role: Operator}, "") {
				t.Fatal("the credentials have a budget")
			}
		}
	})
}

// TestASite: of IPv6 one client may have many addresses of a /64, and many /64 of a /48. Neither uses up what a public key has for
// all its clients.
func TestASite(t *testing.T) {
	for _, c := range []struct {
		addresses string
		want      float64
	}{
		{"2001:db8:1:0:0:0:%x:%x", perAddress.Burst},
		{"2001:db8:1:%x:%x::1", perSite.Burst},
		{"2001:db8:1:%x::%x", perSite.Burst},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, page, tried := newWrongCodes(&uses{}), Principal{ID: "p", Role: Producer, Public: true}, 0.0
			for i := range 4096 {
				if end, wait := b.Reserve(page, netip.MustParseAddr(fmt.Sprintf(c.addresses, i, i))); wait == 0 {
					end(true)
					tried++
				}
			}
			if tried != c.want {
				t.Errorf("%d addresses %s tried %g codes, expected %g", 4096, c.addresses, tried, c.want)
			}
			if _, wait := b.Reserve(page, netip.MustParseAddr("192.0.2.1")); wait > 0 {
				t.Error("nothing is left for another client")
			}
		})
	}
}
