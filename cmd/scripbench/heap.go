package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"strings"
)

// Heap is the server's heap by package, in bytes: a sample after garbage collection.
type Heap struct {
	Scheduler int64 `json:"scheduler_bytes"`
	Lane      int64 `json:"lane_bytes"`
	Other     int64 `json:"other_bytes"` // NATS and all else
}

// heap reads the server's profile.
func (s *scripServer) heap(ctx context.Context) (Heap, error) {
	body, err := s.http(ctx, "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return Heap{}, err
	}
	defer body.Close()
	return parseHeap(body)
}

// parseHeap adds up a profile in text form: for each stack a line "objects: bytes [allocated ever] @ addresses", then its
// calls, one each line. Only a part of the objects smaller than the sampling rate is in the sample; they are scaled up as
// in pprof.
func parseHeap(r io.Reader) (h Heap, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	rate := 0.0
	var bytes float64
	var into *int64
	flush := func() {
		if into != nil {
			*into += int64(bytes)
		}
		into, bytes = nil, 0
	}
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "heap profile:"):
			var every int64
			if _, err := fmt.Sscan(line[strings.LastIndex(line, "/")+1:], &every); err != nil {
				return h, fmt.Errorf("heap profile: %q: %w", line, err)
			}
			rate = float64(every) / 2 // the header has twice the rate
		case strings.HasPrefix(line, "# runtime.MemStats"):
			flush()
			return h, nil
		case strings.HasPrefix(line, "#"):
			switch {
			case into == nil || into == &h.Scheduler:
			case strings.Contains(line, "/streams/scheduler."):
				into = &h.Scheduler
			case strings.Contains(line, "/streams/lane.") || strings.Contains(line, "/scrip/domain."):
				if into == &h.Other {
					into = &h.Lane
				}
			}
		case strings.Contains(line, " @"):
			flush()
			var objects, size int64
			if _, err := fmt.Sscanf(line, "%d: %d [", &objects, &size); err != nil {
				return h, fmt.Errorf("heap profile: %q: %w", line, err)
			}
			into, bytes = &h.Other, scaled(objects, size, rate)
		}
	}
	flush()
	return h, lines.Err()
}

// scaled is how many bytes a sample of so many objects and bytes represents.
func scaled(objects, bytes int64, rate float64) float64 {
	if objects == 0 || rate <= 1 {
		return float64(bytes)
	}
	return float64(bytes) / (1 - math.Exp(-float64(bytes)/float64(objects)/rate))
}
