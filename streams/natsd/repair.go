package natsd

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/minio/highwayhash"

	"github.com/seed-4a2410e3/scrip/streams/atomicfile"
)

// nats-server describes a stream, and each consumer of it, in two files that it writes one after the other:
//
//	write meta.inf, sync ──> write meta.sum, sync
//	                     └ crash: the sum is missing (new) or that of the old meta.inf (changed)
//
// At the next start it ignores such a directory. A stream that is then created again keeps the meta.inf it finds and never
// gets a meta.sum: it accepts messages, and is lost with all of them at the start after. A stream whose configuration was
// being changed is lost at once. Both are repaired before nats-server reads the directory.
const (
	metaFile    = "meta.inf"
	metaSumFile = "meta.sum"
	metaKeyFile = "meta.key" // exists if meta.inf is encrypted, which it is not here
)

// completeMeta writes the checksums that nats-server could not write before a crash, in all streams of a store and their consumers.
func completeMeta(store string, log *slog.Logger) error {
	streams, err := filepath.Glob(filepath.Join(escapeGlob(store), "jetstream", "*", "streams", "*"))
	if err != nil {
		return err
	}
	for _, dir := range streams {
		stream := filepath.Base(dir)
		err := completeSum(dir, stream, stream, log)
		consumers, globErr := filepath.Glob(filepath.Join(escapeGlob(dir), "obs", "*"))
		for _, dir := range consumers {
			name := filepath.Base(dir)
			err = errors.Join(err, completeSum(dir, name, stream+"/"+name, log))
		}
		if err = errors.Join(err, globErr); err != nil {
			return fmt.Errorf("completing the description of a stream: %w", err)
		}
	}
	return nil
}

// completeSum writes meta.sum in dir, if after a crash it is missing, empty or older than meta.inf. nats-server refuses a sum
// that is wrong for another reason.
func completeSum(dir, name, key string, log *slog.Logger) error {
	inf, sum := filepath.Join(dir, metaFile), filepath.Join(dir, metaSumFile)
	text, err := os.ReadFile(inf)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // nothing was acknowledged yet: the stream is created again
	}
	if err != nil {
		return err
	}
	have, err := os.ReadFile(sum)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	want, err := metaSum(key, text)
	if err != nil || string(have) == want {
		return err
	}
	if len(have) > 0 {
		changed, err := newer(inf, sum)
		if err != nil || !changed {
			return err
		}
	}
	var described struct {
		Name string `json:"name"`
	}
	_, encrypted := os.Lstat(filepath.Join(dir, metaKeyFile))
	if json.Unmarshal(text, &described) != nil || described.Name != name || encrypted == nil {
		return nil
	}
	log.Warn("a crash interrupted the creation or a change of a stream or consumer; completing it", "dir", dir)
	return atomicfile.Write(sum, []byte(want), 0o600)
}

// metaSum is nats-server's checksum of a meta.inf.
func metaSum(key string, text []byte) (string, error) {
	hashed := sha256.Sum256([]byte(key))
	h, err := highwayhash.NewDigest64(hashed[:])
	if err != nil {
		return "", err
	}
	if _, err := h.Write(text); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// newer reports whether a was written after b.
func newer(a, b string) (bool, error) {
	first, err := os.Stat(a)
	if err != nil {
		return false, err
	}
	second, err := os.Stat(b)
	if err != nil {
		return false, err
	}
	return first.ModTime().After(second.ModTime()), nil
}

// escapeGlob escapes a path so that it matches itself.
func escapeGlob(path string) string {
	var escaped []rune
	for _, r := range path {
		if r == '*' || r == '?' || r == '[' || r == '\\' {
			escaped = append(escaped, '\\')
		}
		escaped = append(escaped, r)
	}
	return string(escaped)
}
