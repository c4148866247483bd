package domain

import "strings"

// tally counts what a step refuses, by campaign and reason: a million of them cost a line.
type tally struct {
	list    []campaignRefusals
	of      map[string]int // place of a campaign in list
	last    int            // place counted last: refusals come in crowds
	closing int            // the most bytes that their lines will have
}

type campaignRefusals struct {
	campaign string
	counts   []RefusalCount
}

// count notes a refusal. It keeps no view of the campaign's name.
func (s *tally) count(campaignName string, r Refusal) {
	if s.last >= len(s.list) || s.list[s.last].campaign != campaignName {
		i, known := s.of[campaignName]
		if !known {
			i = s.add(strings.Clone(campaignName))
		}
		s.last = i
	}
	of := &s.list[s.last]
	for k := range of.counts {
		if of.counts[k].Refusal == r {
			of.counts[k].Count++
			return
		}
	}
	of.counts = append(of.counts, RefusalCount{r, 1})
	s.closing += costReason + len(r)
}

func (s *tally) add(campaignName string) int {
	if s.of == nil {
		s.of = make(map[string]int)
	}
	i := len(s.list)
	s.of[campaignName] = i
	if i < cap(s.list) {
		s.list = s.list[:i+1] // with the room for counts that stood there
		s.list[i] = campaignRefusals{campaignName, s.list[i].counts[:0]}
	} else {
		s.list = append(s.list, campaignRefusals{campaign: campaignName})
	}
	s.closing += costRefused + len(campaignName)
	return i
}

// clear forgets everything but the room it took.
func (s *tally) clear() {
	clear(s.of)
	s.list, s.last, s.closing = s.list[:0], 0, 0
}
