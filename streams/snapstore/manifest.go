package snapstore

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/seed-4a2410e3/scrip/streams/eventlog"
)

// formatVersion is the format of manifests and pointers, not of what the parts hold (that is Meta.Format).
const formatVersion = 1

// Meta describes a snapshot. It is the caller's: the store stores and returns it.
type Meta struct {
	// Format is the format of the content. Load's accept decides which are known.
	Format int `json:"format"`
	// Position is the last message folded in.
	Position eventlog.Position `json:"position"`
	// Note is further data of the caller, as JSON.
	Note json.RawMessage `json:"note,omitempty"`
}

// errUnsealed is the kind of a snapshot without a valid seal. Its hashes prove that it is complete, not who wrote it.
var errUnsealed = errors.New("the snapshot carries no valid seal")

// manifest is the table of contents of one snapshot.
type manifest struct {
	Version int    `json:"version"`
	Meta    Meta   `json:"meta"`
	Parts   []part `json:"parts"`
}

type part struct {
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// pointer is the value in KV: the valid snapshots, newest first.
type pointer struct {
	Version   int   `json:"version"`
	Snapshots []ref `json:"snapshots"`
}

type ref struct {
	// Prefix of the snapshot's objects: snap/<name>/<sequence>.<nonce>. The nonce keeps two owners, and two attempts,
	// from writing into each other's parts.
	Prefix string `json:"prefix"`
	// SHA256 of the manifest.
	SHA256 string `json:"sha256"`
	// Seal is described at seal.Key.Snapshot.
	Seal string `json:"seal"`
}

func (r ref) manifest() string  { return r.Prefix + "/manifest" }
func (r ref) part(i int) string { return fmt.Sprintf("%s/%05d", r.Prefix, i) }
