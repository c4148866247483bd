package readers

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// sqlstate is how errors of PostgreSQL end, also those that a command or an answer over HTTP quotes.
var sqlstate = regexp.MustCompile(`SQLSTATE [0-9A-Z]{5}`)

// shown bounds the lines of one kind: one fault may end each read after it.
const shown = 20

// report keeps what failed. It is safe for concurrent use.
type report struct {
	mu    sync.Mutex
	now   string // what the rebuild does
	since time.Time
	most  time.Duration
	did   map[string]int      // how often each kind read, or rebuilt
	lines map[string][]string // by kind and SQLSTATE
	more  map[string]int      // beyond shown
}

func newReport() *report {
	return &report{now: calmly, since: time.Now(), did: map[string]int{},
		lines: map[string][]string{}, more: map[string]int{}}
}

// calmly is what the rebuild does when there is none.
const calmly = "no rebuild"

// doing tells what runs from now on, for the lines.
func (r *report) doing(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now != calmly {
		r.most = max(r.most, time.Since(r.since))
	}
	r.now, r.since = what, time.Now()
}

func (r *report) longest() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.most.Round(time.Millisecond)
}

// done counts something that began at a time and has just ended, and adds a line about it if it failed.
func (r *report) done(kind string, began time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.did[kind]++; err == nil {
		return
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	state := sqlstate.FindString(text)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		state = "cut off"
	case state == "":
		state = "no SQLSTATE"
	}
	kind += ", " + state
	if len(r.lines[kind]) >= shown {
		r.more[kind]++
		return
	}
	ago := func(at time.Time) time.Duration { return time.Since(at).Round(time.Millisecond) }
	r.lines[kind] = append(r.lines[kind], fmt.Sprintf("%s, at %s after %s, %s since %s: %v",
		kind, time.Now().Format("15:04:05.000"), ago(began), r.now, ago(r.since), text))
}

// print fails the test for each line, and prints how often each kind read.
func (r *report) print(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, kind := range slices.Sorted(maps.Keys(r.did)) {
		t.Logf("%s: %d", kind, r.did[kind])
	}
	for _, kind := range slices.Sorted(maps.Keys(r.lines)) {
		for _, line := range r.lines[kind] {
			t.Error(line)
		}
		if n := r.more[kind]; n > 0 {
			t.Errorf("%s: %d more", kind, n)
		}
	}
}

// reads is how many there were of all kinds.
func (r *report) reads() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for kind, did := range r.did {
		if kind != rebuilding {
			n += did
		}
	}
	return n
}
