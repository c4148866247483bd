package power

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

// Plan decides which unsynced changes survive a cut.
type Plan string

// Plans. A real file system may do any of them, since it writes back what it likes, when it likes.
const (
	// DropAll leaves exactly what was synced.
	DropAll Plan = "drop"
	// KeepNames keeps all changes of names and drops all data: a new file is empty, as on a file system that has written its
	// journal and not yet the data.
	KeepNames Plan = "names"
	// KeepData keeps all data of files that have a durable name and drops all changes of names.
	KeepData Plan = "data"
	// Mixed decides for each name, in order within its directory, and for each page.
	Mixed Plan = "mixed"
	// KeepAll drops nothing: the kernel lives on, as after kill -9.
	KeepAll Plan = "all"
)

// Plans are all of them.
var Plans = []Plan{DropAll, KeepNames, KeepData, Mixed, KeepAll}

// Report is what a cut has dropped of what was not synced.
type Report struct {
	Plan                       Plan
	NamesDropped, PagesDropped int
	Dropped                    []string // some of it, for people
}

func (r Report) String() string {
	return fmt.Sprintf("%s: %d names and %d pages dropped", r.Plan, r.NamesDropped, r.PagesDropped)
}

// notesOf bounds Report.Dropped.
const notesOf = 400

func (r *Report) note(format string, args ...any) {
	if len(r.Dropped) < notesOf {
		r.Dropped = append(r.Dropped, fmt.Sprintf(format, args...))
	}
}

// cut changes the tree to its state after a power cut. The caller must not use it concurrently.
func (t *tree) cut(plan Plan, rng *rand.Rand) Report {
	r := Report{Plan: plan}
	t.cutNames(plan, rng, &r)
	t.journal = nil
	seen := map[uint64]*inode{}
	t.revive(t.root, nil, plan, rng, &r, seen)
	t.nodes = seen
	return r
}

// cutNames makes durable what the plan keeps of the journal. In each directory it keeps the first changes and drops the
// later ones.
func (t *tree) cutNames(plan Plan, rng *rand.Rand, r *Report) {
	drop := map[Plan]float64{DropAll: 1, KeepData: 1}[plan]
	if plan == Mixed {
		drop = []float64{0.01, 0.1, 0.4}[rng.IntN(3)]
	}
	stopped := map[*inode]bool{}
	kept := map[*change]bool{}
	for _, c := range t.journal {
		stop := slices.ContainsFunc(c.sets, func(s set) bool { return stopped[s.dir] }) || drop > 0 && rng.Float64() < drop
		for _, s := range c.sets {
			if stop {
				stopped[s.dir] = true
				verb := "+"
				if s.to == nil {
					verb = "-"
				}
				r.note("name %s%s/%s", verb, t.path(s.dir), s.name)
			}
		}
		if stop {
			r.NamesDropped++
		} else {
			kept[c] = true
		}
	}
	t.settle(func(c *change) bool { return kept[c] })
}

// revive gives an inode and all that its durable names lead to their state after the cut.
func (t *tree) revive(n, parent *inode, plan Plan, rng *rand.Rand, r *Report, seen map[uint64]*inode) {
	if seen[n.number] != nil {
		n.links++
		return
	}
	seen[n.number] = n
	if n.attr != n.keptAttr && (plan == DropAll || plan == Mixed && rng.IntN(2) == 0) {
		r.note("attributes of %s", t.path(n))
		n.attr = n.keptAttr
	}
	n.keptAttr, n.born, n.parent, n.links = n.attr, nil, parent, 1
	if !n.isDir() {
		t.cutData(n, plan, rng, r)
		return
	}
	n.entries = maps.Clone(n.kept)
	for _, name := range slices.Sorted(maps.Keys(n.entries)) {
		t.revive(n.entries[name], n, plan, rng, r, seen)
	}
}

// cutData drops what the plan does not keep of a file's contents. A file that grew may have any size between the old one
// and the new one, with zeroes where a page was dropped.
func (t *tree) cutData(n *inode, plan Plan, rng *rand.Rand, r *Report) {
	h := n.held
	if h == nil {
		return
	}
	n.held = nil
	dropped := map[Plan]float64{DropAll: 1, KeepNames: 1}[plan]
	if plan == Mixed {
		dropped = []float64{0, 0.5, 1}[rng.IntN(3)]
	}
	if dropped == 0 {
		return
	}
	whole, size := max(h.size, len(n.content)), h.size
	if dropped < 1 {
		least := min(h.size, len(n.content))
		size = []int{h.size, len(n.content), least + rng.IntN(whole-least+1)}[rng.IntN(3)]
	}
	r.note("data of %s: %d bytes, %d kept, %d pages held", t.path(n), len(n.content), size, len(h.pages))
	n.grow(whole)
	for _, i := range slices.Sorted(maps.Keys(h.pages)) {
		if dropped < 1 && rng.Float64() >= dropped {
			continue
		}
		r.PagesDropped++
		clear(n.page(i))
		copy(n.page(i), h.pages[i])
	}
	n.content = slices.Clone(n.content[:size])
}
