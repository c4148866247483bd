package webhook

import (
	"errors"
	"maps"

	"github.com/seed-4a2410e3/scrip/streams/changelog"
)

// fold is the registry of a Runner as a [changelog.Fold].
type fold struct {
	runner   *Runner
	registry *registry
	ignored  map[uint64]bool // revisions of changes that were logged
	logged   string          // the trouble that was logged
}

func (f *fold) Begin() { f.registry = newRegistry() }

func (f *fold) Apply(m changelog.Message) {
	if err := f.registry.fold(m); err != nil && !f.ignored[m.Revision] {
		f.ignored[m.Revision] = true
		f.runner.o.Logger.Warn("a change of the webhooks is ignored; run a version that supports it", "key", m.Key, "why", err)
	}
}

// errEmpty: an empty new bucket ends no webhook; the first change in it does.
var errEmpty = errors.New("the bucket of webhooks was lost and exists again without a webhook; this server keeps its webhooks until it is restarted or one is made")

// Current puts the endpoints in force.
func (f *fold) Current(lost bool) error {
	if lost && len(f.registry.endpoints)+len(f.registry.gone) == 0 {
		return errEmpty
	}
	f.logged = ""
	r := f.runner
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now, r.gone = f.registry.list(), maps.Clone(f.registry.gone)
	close(r.changed)
	r.changed = make(chan struct{})
	r.Changed.Send(struct{}{})
	return nil
}

// Trouble logs why changes are not received, or that the bucket is lost.
func (f *fold) Trouble(err error) {
	if errors.Is(err, changelog.ErrDisconnected) || errors.Is(err, changelog.ErrBehind) || err.Error() == f.logged {
		return // resolved at once, or logged already
	}
	f.logged = err.Error()
	f.runner.o.Logger.Warn("the webhooks are not current; those read last stay in force, and the server retries", "err", err)
}
