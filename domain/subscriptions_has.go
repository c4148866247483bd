package domain

// Has says whether subscription r is pending.
func (s *Subscriptions) Has(r uint64) bool {
	return s.p != nil && r <= MaxReminder && s.p.at(uint32(r)) != nil
}
