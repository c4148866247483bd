package domain

import (
	"time"

	"github.com/seed-4a2410e3/scrip/domain/siphash"
)

// hasher makes the keyed hashes kept instead of customers, orders and ids. Keyed, so that nobody outside can choose ids
// that collide.
type hasher struct{ key [16]byte }

func (h hasher) customer(s string) customerHash { return siphash.Sum128(h.key, s) }

func (h hasher) text(s string) uint64 { return siphash.Sum64(h.key, s) }

// reminder is the argument hash of a remind or unremind command.
func (h hasher) reminder(customer customerHash, kind string, before time.Duration) uint64 {
	x := customer[0] ^ customer[1]*0x9e3779b97f4a7c15 ^ uint64(before)*0xff51afd7ed558ccd
	if kind == KindExpires {
		x = ^x
	}
	return x
}
