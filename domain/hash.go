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
	x := reminded(customer) ^ leadHash(before)
	if kind == KindExpires {
		x = ^x
	}
	return x
}

// reminded is the part of a reminder's hash that is the customer's. What leadHash adds can be taken off again, so of a pending
// reminder, whose lead time is known, the hash says whose it is.
func reminded(customer customerHash) uint64 { return customer[0] ^ customer[1]*0x9e3779b97f4a7c15 }

func leadHash(before time.Duration) uint64 { return uint64(before) * 0xff51afd7ed558ccd }
