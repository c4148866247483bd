package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-4a2410e3/scrip/streams/seal"
)

// sealFile holds the seal of SHA256SUMS. Versions before it wrote none, and pass over it.
const sealFile = sumsFile + ".seal"

// sealName sets the seals of backups apart from those of snapshots.
const sealName = "backup"

func sealOf(key *seal.Key, sums []byte) string { return key.Snapshot(sealName, sumOf(sums)) + "\n" }

// CheckSeal says whether the backup was taken by somebody who has the log's seal key, and is as it was then. sealed is
// false for one that was taken without that key, or by a version before seals. Errors: ErrDamaged.
func (b *Backup) CheckSeal(key *seal.Key) (sealed bool, err error) {
	raw, err := os.ReadFile(filepath.Join(b.dir, sealFile))
	switch {
	case errors.Is(err, fs.ErrNotExist) && b.Sealed:
		return false, damaged("there is no %s, and %s says that there is one", sealFile, manifestFile)
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading the backup: %w", err)
	case string(raw) != sealOf(key, b.rawSums):
		return false, damaged("%s is not the seal of %s under the key of log %s: somebody changed the backup, or made it without that key", sealFile, sumsFile, b.Log)
	}
	return true, nil
}

// foreignSettings are settings of a stream by which its messages go elsewhere, come from elsewhere, or are changed.
// scrip's streams have none of them.
var foreignSettings = []string{"republish", "subject_transform", "sources", "mirror"}

// checkConfig refuses a stream whose configuration has what scrip never sets. Values that mean "not set" pass.
func checkConfig(info streamInfo) error {
	var config map[string]json.RawMessage
	if err := json.Unmarshal(info.Config, &config); err != nil {
		return err
	}
	for name, value := range config {
		name = strings.ToLower(name) // encoding/json, and so NATS, reads names in any case
		if text := string(value); slices.Contains(foreignSettings, name) && text != "null" && text != "[]" {
			return fmt.Errorf("its configuration sets %s, which scrip never does: what is restored would send messages elsewhere or take them from there", name)
		}
	}
	return nil
}
