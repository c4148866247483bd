package timers

import "github.com/seed-4a2410e3/scrip/domain"

// Priority is a campaign's. The zero one is normal: what has never been set. Snapshots hold its number.
type Priority uint8

const (
	Normal Priority = iota
	High
	Low
	Priorities
)

func (p Priority) String() string {
	return [Priorities]string{domain.PriorityNormal, domain.PriorityHigh, domain.PriorityLow}[p]
}

// PriorityOf reads a campaign's setting. What is neither high nor low is normal.
func PriorityOf(setting string) Priority {
	switch setting {
	case domain.PriorityHigh:
		return High
	case domain.PriorityLow:
		return Low
	}
	return Normal
}
