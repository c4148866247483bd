package domain

import (
	"slices"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/wire"
)

// tally counts the refusals of a step by campaign and reason: a million of them make one line.
type tally struct {
	list    []campaignRefusals
	of      map[string]int // index of a campaign in list
	last    int            // index counted last: successive refusals are often of one campaign
	sample  []string       // names of campaigns that do not exist
	closing int            // the most bytes that their lines will have
}

type campaignRefusals struct {
	campaign string
	counts   []wire.RefusalCount
}

// count counts a refusal. It keeps no view of the campaign's name.
func (s *tally) count(campaignName string, r wire.Refusal) {
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
	of.counts = append(of.counts, wire.RefusalCount{Refusal: r, Count: 1})
	s.closing += costReason + len(r)
}

// maxSample is how many names of campaigns that do not exist a step writes.
const maxSample = 16

// has reports whether refusals of that campaign are counted already.
func (s *tally) has(campaignName string) bool {
	if s.last < len(s.list) && s.list[s.last].campaign == campaignName {
		return true
	}
	_, known := s.of[campaignName]
	return known
}

// unknown adds the name of a campaign that does not exist to the sample, if there is room and the name is valid.
func (s *tally) unknown(campaignName string) {
	if len(s.sample) == maxSample || !wire.ValidCampaignName(campaignName) || slices.Contains(s.sample, campaignName) {
		return
	}
	if s.closing += len(campaignName) + costSampled; len(s.sample) == 0 {
		s.closing += costSample
	}
	s.sample = append(s.sample, strings.Clone(campaignName))
}

// sampleOf is what the line of a campaign has as sample.
func (s *tally) sampleOf(campaignName string) []string {
	if campaignName != "" {
		return nil
	}
	return s.sample
}

func (s *tally) add(campaignName string) int {
	if s.of == nil {
		s.of = make(map[string]int)
	}
	i := len(s.list)
	s.of[campaignName] = i
	if i < cap(s.list) {
		s.list = s.list[:i+1] // reuses the counts of the entry that was there
		s.list[i] = campaignRefusals{campaignName, s.list[i].counts[:0]}
	} else {
		s.list = append(s.list, campaignRefusals{campaign: campaignName})
	}
	s.closing += costRefused + len(campaignName)
	return i
}

// clear empties it and keeps its memory.
func (s *tally) clear() {
	clear(s.of)
	s.list, s.last, s.closing = s.list[:0], 0, 0
	clear(s.sample)
	s.sample = s.sample[:0]
}
