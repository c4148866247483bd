package scheduler

import "github.com/seed-4a2410e3/scrip/domain"

// priority is a campaign's. The zero one is normal: what has never been set.
type priority uint8

const (
	normal priority = iota
	high
	low
	priorities
)

func (p priority) String() string {
	return [priorities]string{domain.PriorityNormal, domain.PriorityHigh, domain.PriorityLow}[p]
}

// priorityOf reads a campaign's setting.
func priorityOf(setting string) priority {
	switch setting {
	case domain.PriorityHigh:
		return high
	case domain.PriorityLow:
		return low
	}
	return normal
}
