package access

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// TestStrangers: an address has some attempts at once and then one a second, at all doors together, and so has a /64 of IPv6; a /48
// has those of ten. Nothing of it is at the cost of others, and memory is bounded.
func TestStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStrangers(nil)
		s.most = 1000
		within := func(address string, attempts int) (n int) {
			for i := range attempts {
				if !s.Wrong([]string{DoorHTTP, DoorNATS}[i%2], netip.MustParseAddr(address)) {
					n++
				}
			}
			return n
		}
		for _, c := range []struct {
			address string
			want    int
		}{
			{"192.0.2.1", StrangerBurst}, {"::ffff:192.0.2.1", 0}, {"192.0.2.2", StrangerBurst},
			{"2001:db8::1", StrangerBurst}, {"2001:db8::2", 0}, {"2001:db8:0:1::1", StrangerBurst},
		} {
			if n := within(c.address, 100); n != c.want {
				t.Errorf("%s made %d attempts, expected %d", c.address, n, c.want)
			}
		}
		time.Sleep(3 * time.Second)
		if n := within("192.0.2.1", 100); n != 3*strangerRate {
			t.Errorf("3 s later %d attempts", n)
		}
		time.Sleep(time.Minute)
		n := 0
		for i := range 5000 { // each of another /64
			if !s.Wrong(DoorHTTP, netip.MustParseAddr(fmt.Sprintf("2001:db8:1:%x::1", i))) {
				n++
			}
		}
		if n != siteShare*StrangerBurst || len(s.by) > s.most {
			t.Errorf("a /48 made %d attempts; %d networks are remembered", n, len(s.by))
		}
	})
}
