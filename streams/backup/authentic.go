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

// sealFile holds the seal of SHA256SUMS. Older versions write none, and ignore it.
const sealFile = sumsFile + ".seal"

// sealName distinguishes the seals of backups from those of snapshots.
const sealName = "backup"

func sealOf(key *seal.Key, sums []byte) string { return key.Snapshot(sealName, sumOf(sums)) + "\n" }

// CheckSeal checks that the backup was taken with the log's seal key and has not been changed since. sealed is false for one
// that was taken without that key, or by a version before seals. Errors: ErrDamaged.
func (b *Backup) CheckSeal(key *seal.Key) (sealed bool, err error) {
	raw, err := os.ReadFile(filepath.Join(b.dir, sealFile))
	switch {
	case errors.Is(err, fs.ErrNotExist) && b.Sealed:
		return false, damaged("%s is missing, and %s lists it", sealFile, manifestFile)
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading the backup: %w", err)
	case string(raw) != sealOf(key, b.rawSums):
		return false, damaged("%s is not the seal of %s under the key of log %s: the backup was changed, or made without that key", sealFile, sumsFile, b.Log)
	}
	return true, nil
}

// foreignSettings are settings of a stream that send its messages elsewhere, take them from elsewhere, or change them.
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
			return fmt.Errorf("its configuration sets %s, which scrip never does: the restored stream would send messages elsewhere or take them from there", name)
		}
	}
	return nil
}
