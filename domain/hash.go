package domain

import (
	"strings"
	"time"
	"unsafe"

	"github.com/seed-4a2410e3/scrip/domain/siphash"
	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// hasher makes the keyed hashes that are stored instead of customers, orders and ids. They are keyed so that clients cannot
// choose ids that collide.
type hasher struct{ key [16]byte }

func (h hasher) customer(s string) customerHash { return siphash.Sum128(h.key, s) }

func (h hasher) text(s string) uint64 { return siphash.Sum64(h.key, s) }

// reminder is the argument hash of a remind or unremind command.
func (h hasher) reminder(customer customerHash, kind string, before time.Duration) uint64 {
	x := reminded(customer) ^ leadHash(before)
	if kind == wire.KindExpires {
		x = ^x
	}
	return x
}

// reminded is the part of a reminder's hash that is the customer's. leadHash can be removed from it again, so the hash of a
// pending reminder, whose lead time is known, identifies its customer.
func reminded(customer customerHash) uint64 { return customer[0] ^ customer[1]*0x9e3779b97f4a7c15 }

func leadHash(before time.Duration) uint64 { return uint64(before) * 0xff51afd7ed558ccd }

// settingsPool lets campaigns share equal settings: a million small campaigns mostly differ in their times, if at all. It is a
// cache: what it evicts stays with the campaigns that have it. The zero value is ready.
type settingsPool struct {
	whole [64]*wire.Settings
	texts [64]string
}

// keep returns settings equal to s that are never changed and share no memory with s.
func (p *settingsPool) keep(s *wire.Settings) *wire.Settings {
	h := uint64(s.Codes)
	for _, v := range [...]uint64{
		uint64(s.PerCustomer), uint64(s.OpensAt), uint64(s.ClosesAt), uint64(s.ExpiresAt), uint64(s.ValidFor), uint64(s.LateAfter),
		uint64(s.MaxRedemptions),
	} {
		h = (h ^ v) * 0x9e3779b97f4a7c15
	}
	slot := &p.whole[h>>58]
	if *slot == nil || !(*slot).Equal(s) {
		kept := *s
		kept.Prefix, kept.Category, kept.Priority = p.text(s.Prefix), p.text(s.Category), p.text(s.Priority)
		kept.Benefit = nil
		if benefit := p.text(wire.View(s.Benefit)); benefit != "" {
			kept.Benefit = unsafe.Slice(unsafe.StringData(benefit), len(benefit))
		}
		*slot = &kept
	}
	return *slot
}

// text returns a string equal to s that shares no memory with it.
func (p *settingsPool) text(s string) string {
	if s == "" {
		return ""
	}
	h := uint64(len(s))
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 0x9e3779b97f4a7c15
	}
	slot := &p.texts[h>>58]
	if *slot != s {
		*slot = strings.Clone(s)
	}
	return *slot
}
