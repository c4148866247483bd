package access

import "net/netip"

// Network is what counts as one client: an address, of IPv6 its /64, which one client has whole. An IPv4 address that is
// written as IPv6 is the IPv4 address.
func Network(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		a = netip.PrefixFrom(a, 64).Masked().Addr()
	}
	return a
}
