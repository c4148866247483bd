package replay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-4a2410e3/scrip/domain"
	"github.com/seed-4a2410e3/scrip/domain/wire"
	"github.com/seed-4a2410e3/scrip/projections/fill"
	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
	"github.com/seed-4a2410e3/scrip/streams/eventlog"
	"github.com/seed-4a2410e3/scrip/streams/streamtest"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// dataSet are the positions of the events in a data set, by day and place.
func dataSet(t *testing.T, dir string) (all []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "day=*", "*.parquet"))
	streamtest.Must(t, err)
	for _, path := range files {
		_, rows := readParquet(t, path)
		for _, row := range rows {
			at := time.UnixMicro(row[5].Int64()).UTC().Format("2006-01-02")
			if day := filepath.Base(filepath.Dir(path)); day != "day="+at {
				t.Errorf("an event of %s is in %s", at, day)
			}
			all = append(all, fmt.Sprint(row[0].Int32(), " ", row[1].Int64(), " ", row[2].Int32()))
		}
	}
	slices.Sort(all)
	return all
}

func (r *rig) places() (all []string) {
	for _, p := range r.naive(func(Position, map[string]any) bool { return true }) {
		all = append(all, fmt.Sprint(p.Lane, " ", p.Sequence, " ", p.Line))
	}
	slices.Sort(all)
	return all
}

// killed is a sink whose process ends before End.
type killed struct{ *partitions }

func (k killed) End(context.Context, error) error { return atomicfile.Unlock(k.lock) }

// TestPartitions: a data set that grows by runs which are killed anywhere has each event once, in a file of its day.
func TestPartitions(t *testing.T) {
	r := newRig(t)
	dir := filepath.Join(t.TempDir(), "events")
	fine := Options{Limits: fill.Limits{Lines: 1}}
	r.work()
	for day := range 3 {
		for n, c := range campaigns { // one message with events of two days, and some of one
			midnight := startTime.Truncate(24 * time.Hour).Add(time.Duration(day+1) * 24 * time.Hour)
			step := domain.NewStep(r.lanes[n])
			for i := range 2 {
				r.Clock = midnight.Add(time.Duration(i-1) * time.Minute)
				line := fmt.Sprintf(`{"id":"m%d-%d","campaign":%q,"type":"update_campaign","late_after":"%dh"}`, day, i, c, day*2+i+1)
				step.Add(domain.Message{Sequence: r.Last[n] + 1 + uint64(i), Scope: wire.ScopeTrusted, Payload: []byte(line + "\n")}, wire.At(r.Clock), nil)
			}
			step.Close()
			r.Publish(n, r.Header(n), step.Events)
			r.do(wire.ScopeTrusted, c, fmt.Sprintf(`"type":"update_campaign","per_customer":%d`, day+2))
		}
		// It is killed after that many batches, with each batch in a file of its own or all in one.
		for after := range 9 {
			s := Partitions(dir).(*partitions)
			s.bytes = 1 + after%2<<30
			ctx, cancel := context.WithCancel(t.Context())
			batches := 0
			_, err := Run(ctx, r.JS, r.Log, killed{s}, Options{Limits: fine.Limits, Logger: loggerTo(&streamtest.Buffer{}), Progress: func(Progress) {
				if batches++; batches == after+2 {
					cancel()
				}
			}})
			cancel()
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			// The files of the last batch may have got their names, and the state not.
			whole, err := filepath.Glob(filepath.Join(dir, "day=*", "*.parquet"))
			streamtest.Must(t, err)
			if len(whole) > 0 {
				streamtest.Must(t, os.WriteFile(filepath.Join(filepath.Dir(whole[0]), "900000.parquet"), []byte("PAR1"), 0o600))
			}
		}
		r.do(wire.ScopeTrusted, campaigns[1], fmt.Sprintf(`"type":"update_campaign","per_customer":%d`, day+10))
		sum := r.run(Partitions(dir), fine)
		streamtest.Equal(t, "events", strings.Join(dataSet(t, dir), "\n"), strings.Join(r.places(), "\n"))
		if again := r.run(Partitions(dir), fine); sum.Events == 0 || again.Events != 0 {
			t.Errorf("%d events, then again %d", sum.Events, again.Events)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, partialFiles)); len(left) > 0 {
			t.Errorf("left %v", left)
		}
	}
	days, _ := filepath.Glob(filepath.Join(dir, "day=*"))
	if len(days) != 4 {
		t.Errorf("days %v", days)
	}
	// Another filter, another writer and a directory without its state are refused.
	if _, err := r.try(Partitions(dir), Options{Filter: Filter{Campaigns: campaigns[:1]}}); err == nil || !strings.Contains(err.Error(), "was started with filters") {
		t.Errorf("another filter: %v", err)
	}
	s := Partitions(dir).(*partitions)
	_, err := s.Begin(t.Context(), r.Log, &Filter{})
	streamtest.Must(t, err)
	if _, err := r.try(Partitions(dir), Options{}); err == nil || !strings.Contains(err.Error(), "stop the other replay") {
		t.Errorf("two at once: %v", err)
	}
	streamtest.Must(t, s.End(t.Context(), nil))
	streamtest.Must(t, os.Remove(filepath.Join(dir, partitionState)))
	if _, err := r.try(Partitions(dir), Options{}); err == nil || !strings.Contains(err.Error(), "without its state file") {
		t.Errorf("no state: %v", err)
	}
}

// TestPartitionsOfManyLanes: the number of files does not depend on the number of lanes, nor does what a kill leaves, anywhere
// between the first of several files and the state.
func TestPartitionsOfManyLanes(t *testing.T) {
	const lanes, rounds = 300, 6
	dir := t.TempDir()
	begin := func() (*partitions, map[int]eventlog.Position) {
		s := Partitions(dir).(*partitions)
		s.age = time.Hour
		places, err := s.Begin(t.Context(), topology.Log{UUID: "log", Lanes: lanes}, &Filter{})
		streamtest.Must(t, err)
		return s, places
	}
	s, places := begin()
	var want []string
	for round := range rounds {
		for lane := range lanes {
			at := startTime.Add(time.Duration(lane) * 4 * time.Minute) // of two days
			p := Position{Lane: lane, Sequence: places[lane].Sequence + 1, Line: 1}
			if round%2 == 0 {
				want = append(want, fmt.Sprint(p.Lane, " ", p.Sequence, " ", p.Line))
			}
			b := &Batch{Lane: lane, First: p.Sequence, Last: p.Sequence, To: eventlog.Position{Log: "log", Lane: lane, Sequence: p.Sequence, Digest: "d"},
				Events: []Event{{Position: p, Event: wire.Event{Type: wire.CampaignPausedEvent, Campaign: "c", At: wire.At(at)}, Raw: []byte("{}")}}}
			streamtest.Must(t, s.Write(t.Context(), b))
		}
		state, err := os.ReadFile(filepath.Join(dir, partitionState))
		streamtest.Must(t, err)
		streamtest.Must(t, s.complete())
		if round%2 == 1 { // it was killed before the state was written
			streamtest.Must(t, os.WriteFile(filepath.Join(dir, partitionState), state, 0o600))
		}
		streamtest.Must(t, atomicfile.Unlock(s.lock))
		s, places = begin()
		slices.Sort(want)
		streamtest.Equal(t, "events", strings.Join(dataSet(t, dir), "\n"), strings.Join(want, "\n"))
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "day=*", "*.parquet")); len(files) != 2*rounds/2 {
		t.Errorf("%d files", len(files))
	}
	streamtest.Must(t, atomicfile.Unlock(s.lock))
}

// TestPartitionsFollow: with Follow, files are completed after a while.
func TestPartitionsFollow(t *testing.T) {
	r := newRig(t)
	r.work()
	dir := t.TempDir()
	s := Partitions(dir).(*partitions)
	s.age = time.Millisecond
	f := r.follow(s, Options{})
	f.until(func() bool { return len(dataSet(t, dir)) == len(r.places()) })
	r.claim(campaigns[0], "gus")
	f.until(func() bool { return len(dataSet(t, dir)) == len(r.places()) })
	f.stop()
	streamtest.Equal(t, "events", strings.Join(dataSet(t, dir), "\n"), strings.Join(r.places(), "\n"))
}
