package natsd

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

const (
	markerFile = "scrip-nats.json"
	lockFile   = "scrip-nats.lock"

	modeStandalone = "standalone"
	modeCluster    = "cluster"
)

// marker records the kind of a store directory.
type marker struct {
	// Mode is "standalone" or "cluster". The two do not mix: nats-server started clustered on a standalone store
	// deletes the streams its cluster does not know, which is all of them.
	Mode string `json:"mode"`
	// Cluster is the cluster's name.
	Cluster string `json:"cluster,omitempty"`
	// Lanes is the log's number of lanes, 0 while not known.
	Lanes int `json:"lanes,omitempty"`
}

// store is the locked directory.
type store struct {
	dir    string
	lock   *os.File
	marker marker
}

// openStore locks the directory and checks its marker against the requested mode.
func openStore(dir string, cluster *Cluster) (*store, error) {
	if err := atomicfile.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the NATS store: %w", err)
	}
	// nats-server itself locks nothing, and two of them on one store destroy it.
	lock, err := atomicfile.Lock(filepath.Join(dir, lockFile))
	var locked *atomicfile.Locked
	switch {
	case errors.As(err, &locked):
		return nil, fmt.Errorf("the NATS store %s is in use by another server; stop that one, or give this one another data directory (--data): %w", dir, err)
	case err != nil:
		return nil, fmt.Errorf("locking the NATS store: %w", err)
	}
	s := &store{dir: dir, lock: lock}
	if err := errors.Join(atomicfile.Sweep(filepath.Join(dir, markerFile)), s.load(cluster)); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *store) load(cluster *Cluster) error {
	want := marker{Mode: modeStandalone}
	if cluster != nil {
		want = marker{Mode: modeCluster, Cluster: cluster.Name}
	}
	have, err := s.read()
	switch {
	case errors.Is(err, os.ErrNotExist):
		have, err = s.guess(want)
		if err != nil {
			return err
		}
	case err != nil:
		return err
	}
	if have.Mode != want.Mode {
		return fmt.Errorf("the NATS store %s belongs to a %s server and can not be started as %s: nats-server would delete its streams; take a backup (`scrip backup`) and restore it (`scrip restore`) into a new directory of the other kind", s.dir, have.Mode, want.Mode)
	}
	if have.Cluster != want.Cluster {
		return fmt.Errorf("the NATS store %s belongs to cluster %q, not %q; start it under its own cluster's name", s.dir, have.Cluster, want.Cluster)
	}
	s.marker = have
	return s.write()
}

func (s *store) read() (marker, error) {
	var m marker
	data, err := os.ReadFile(filepath.Join(s.dir, markerFile))
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("marker %s is damaged (%w); write {\"mode\":\"standalone\"} or {\"mode\":\"cluster\",\"cluster\":NAME} into it, depending on the store", filepath.Join(s.dir, markerFile), err)
	}
	return m, nil
}

// guess returns the marker of a store without one: a new store, or one that nats-server made without scrip. The latter is
// recognised by the directory in which a cluster node stores its meta group.
func (s *store) guess(want marker) (marker, error) {
	js := filepath.Join(s.dir, "jetstream")
	if _, err := os.Stat(filepath.Join(js, "$SYS", "_js_", "_meta_")); err == nil {
		if want.Mode == modeCluster {
			return want, nil
		}
		return marker{Mode: modeCluster}, nil
	}
	if HasStreams(s.dir) {
		return marker{Mode: modeStandalone}, nil
	}
	return want, nil
}

// Lanes returns the number of lanes that a store directory has recorded, 0 = none. It may be in use.
func Lanes(dir string) int {
	m, _ := (&store{dir: dir}).read() // Start reports a damaged one
	return m.Lanes
}

// HasStreams reports whether a store directory has streams. It may be in use.
func HasStreams(dir string) bool {
	entries, err := os.ReadDir(filepath.Join(dir, "jetstream", "$G", "streams"))
	return err == nil && len(entries) > 0
}

func (s *store) write() error {
	data, err := json.Marshal(s.marker)
	if err != nil {
		return err
	}
	// A crash leaves the old marker, which is still valid.
	if err := atomicfile.Write(filepath.Join(s.dir, markerFile), append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing the NATS store's marker: %w", err)
	}
	return nil
}

func (s *store) close() { _ = atomicfile.Unlock(s.lock) }
