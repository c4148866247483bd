package domain

import (
	"strings"
	"unsafe"
)

// settingsPool lets campaigns share what is equal in their settings: a million small campaigns mostly differ in their
// times, if at all. It is a cache, no registry: what is pushed out of it is kept by those who have it already. The zero
// value is ready.
type settingsPool struct {
	whole [64]*Settings
	texts [64]string
}

// keep returns settings equal to s that nobody writes and that do not hang on what s is a view of.
func (p *settingsPool) keep(s *Settings) *Settings {
	h := uint64(s.Codes)
	for _, v := range [...]uint64{
		uint64(s.PerCustomer), uint64(s.OpensAt), uint64(s.ClosesAt), uint64(s.ExpiresAt), uint64(s.ValidFor), uint64(s.LateAfter),
		uint64(s.MaxRedemptions),
	} {
		h = (h ^ v) * 0x9e3779b97f4a7c15
	}
	place := &p.whole[h>>58]
	if *place == nil || !(*place).Equal(s) {
		kept := *s
		kept.Prefix, kept.Category, kept.Priority = p.text(s.Prefix), p.text(s.Category), p.text(s.Priority)
		kept.Benefit = nil
		if benefit := p.text(view(s.Benefit)); benefit != "" {
			kept.Benefit = unsafe.Slice(unsafe.StringData(benefit), len(benefit))
		}
		*place = &kept
	}
	return *place
}

// text returns a string equal to s that nobody writes.
func (p *settingsPool) text(s string) string {
	if s == "" {
		return ""
	}
	h := uint64(len(s))
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 0x9e3779b97f4a7c15
	}
	place := &p.texts[h>>58]
	if *place != s {
		*place = strings.Clone(s)
	}
	return *place
}
