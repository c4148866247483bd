package push

import "sync"

const (
	// suspectAfter is how many calls for a campaign must fail in a row before its messages wait behind those of others.
	suspectAfter = 8
	// suspectsMost bounds the campaigns that are remembered.
	suspectsMost = 10_000
)

// suspects counts, per campaign, the calls that failed since the last one that delivered. A campaign that the gateway refuses
// is set aside by it and delays no other one. It belongs to one process, and a crash loses it.
type suspects struct {
	mu     sync.Mutex
	failed map[string]int
}

// count counts the result of a call for one campaign.
func (s *suspects) count(campaign string, delivered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case delivered:
		delete(s.failed, campaign)
	case len(s.failed) >= suspectsMost && s.failed[campaign] == 0:
		clear(s.failed) // all begin again
		fallthrough
	default:
		if s.failed == nil {
			s.failed = map[string]int{}
		}
		s.failed[campaign]++
	}
}

// sort divides items: those to be tried now, and those of campaigns that only fail. fresh reports whether there is one of a
// campaign that has not failed at all.
func (s *suspects) sort(all []item) (now, later []item, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.failed) == 0 {
		return all, nil, true
	}
	for i := range all {
		n := s.failed[all[i].Campaign]
		fresh = fresh || n == 0
		if n >= suspectAfter {
			later = append(later, all[i])
		} else {
			now = append(now, all[i])
		}
	}
	return now, later, fresh
}
