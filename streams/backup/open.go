package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/seed-4a2410e3/scrip/domain/code"
	"github.com/seed-4a2410e3/scrip/streams/seal"
	"github.com/seed-4a2410e3/scrip/streams/topology"
)

// ErrDamaged is the kind of every error about a backup's files. The text names the file.
var ErrDamaged = errors.New("the backup is damaged or incomplete")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: "+format+"; use another copy of it, or another backup", append([]any{ErrDamaged}, args...)...)
}

// ErrNoKey is the kind of the error about a backup without its key, if another key is given or none.
var ErrNoKey = errors.New("the backup cannot be decrypted")

// Backup is a backup whose files have been checked.
type Backup struct {
	Manifest
	dir  string
	sums map[string]string
	// rawSums is the file with them.
	rawSums []byte
	infos   []streamInfo // in the order of Streams
	key     [32]byte
	box     *seal.Box
}

// Open reads a backup, decrypts it and checks every byte of it. key is for a backup that does not hold its own, nil = there is
// none. progress, which may be nil, is called with the number of bytes read. Errors name the file: ErrDamaged, ErrNoKey, a newer
// format, a stream that scrip does not make so, a directory that is no backup.
func Open(ctx context.Context, dir string, key *[32]byte, progress func(done, total int64)) (*Backup, error) {
	b := &Backup{dir: dir}
	if err := b.readSums(ctx); err != nil {
		return nil, err
	}
	manifest, err := b.small(ctx, manifestFile, mostManifest, true)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(manifest, &b.Manifest); err != nil {
		return nil, damaged("%s: %w", manifestFile, err)
	}
	if err := b.check(); err != nil {
		return nil, err
	}
	for _, name := range b.files() {
		if b.sums[name] == "" {
			return nil, damaged("%s does not list %s", sumsFile, name)
		}
	}
	if err := b.findKey(ctx, key); err != nil {
		return nil, err
	}
	b.box = newBox(b.key, b.Log)
	var done int64
	for _, s := range b.Streams {
		if err := b.readStream(ctx, s, func(n int) {
			if done += int64(n); progress != nil {
				progress(done, b.Size())
			}
		}); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// CodeKey returns the code key of the log, which is in the backup or was given to Open.
func (b *Backup) CodeKey() [32]byte { return b.key }

// readSums reads SHA256SUMS, whose form is that of sha256sum(1), strictly.
func (b *Backup) readSums(ctx context.Context) error {
	if _, err := os.Lstat(filepath.Join(b.dir, sumsFile)); errors.Is(err, fs.ErrNotExist) {
		switch _, err := os.Stat(b.dir); {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("there is no backup at %s; name the directory that `scrip backup` made", b.dir)
		case err != nil:
			return fmt.Errorf("reading the backup: %w", err)
		}
		if strings.HasSuffix(filepath.Clean(b.dir), incompleteSuffix) {
			return fmt.Errorf("%s is a backup that was interrupted; use another one", b.dir)
		}
		return damaged("%s has no %s", b.dir, sumsFile)
	}
	raw, err := b.small(ctx, sumsFile, mostSums, false)
	if err != nil {
		return err
	}
	text, ended := strings.CutSuffix(string(raw), "\n")
	if !ended {
		return damaged("%s ends in the middle of a line", sumsFile)
	}
	b.rawSums, b.sums = raw, map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		sum, name, ok := strings.Cut(line, "  ")
		if _, err := hex.DecodeString(sum); !ok || err != nil || len(sum) != 2*sha256.Size || name != filepath.Base(name) || b.sums[name] != "" {
			return damaged("%s has the line %q", sumsFile, line)
		}
		b.sums[name] = sum
	}
	return nil
}

func (b *Backup) mismatch(name string) error {
	return damaged("%s does not have the checksum in %s", name, sumsFile)
}

// findKey takes the key that is in the backup, else the given one.
func (b *Backup) findKey(ctx context.Context, given *[32]byte) error {
	switch {
	case b.Key:
	case given == nil:
		return fmt.Errorf("%w: it was taken of log %s without the code key, whose fingerprint is %s", ErrNoKey, b.Log, b.KeyFingerprint)
	case code.Fingerprint(*given) != b.KeyFingerprint:
		return fmt.Errorf("%w: it was taken of log %s without the code key, whose fingerprint is %s, and the key given has %s",
			ErrNoKey, b.Log, b.KeyFingerprint, code.Fingerprint(*given))
	default:
		b.key = *given
		return nil
	}
	raw, err := b.small(ctx, keyFile, mostKey, true)
	if err != nil {
		return err
	}
	if b.key, err = code.ParseKey(string(raw)); err != nil {
		return damaged("%s: %w", keyFile, err)
	}
	if code.Fingerprint(b.key) != b.KeyFingerprint {
		return damaged("%s is not the key of this log", keyFile)
	}
	return nil
}

// readStream checks one stream's files and keeps the small one.
func (b *Backup) readStream(ctx context.Context, s Stream, progress func(n int)) error {
	head, err := b.decrypted(ctx, s.info(), -1, mostInfo, func(int) {})
	if err != nil {
		return err
	}
	defer head.Close()
	raw, err := io.ReadAll(head)
	if err != nil {
		return err
	}
	var info streamInfo
	if err := json.Unmarshal(raw, &info); err != nil {
		return damaged("%s: %w", s.info(), err)
	}
	// A stream comes back as scrip makes it: with another setting it could send messages elsewhere, or take them from there.
	var differs []string
	if info.Config, differs = b.log().AsMade(s.Name, info.Config); len(differs) > 0 {
		return fmt.Errorf("%s: %s; scrip makes no such stream: use another backup, or correct the stream and take one again", s.info(), strings.Join(differs, ", "))
	}
	b.infos = append(b.infos, info)
	data, err := b.decrypted(ctx, s.data(), s.Size, 0, progress)
	if err != nil {
		return err
	}
	defer data.Close()
	_, err = io.Copy(io.Discard, data)
	return err
}

func sumOf(data []byte) string {
	digest := sha256.New()
	_, _ = io.Copy(digest, bytes.NewReader(data))
	return hexSum(digest)
}

// sealFile holds the seal of SHA256SUMS.
const sealFile = sumsFile + ".seal"

// sealName distinguishes the seals of backups from those of snapshots.
const sealName = "backup"

func sealOf(key *seal.Key, sums []byte) string { return key.Snapshot(sealName, sumOf(sums)) + "\n" }

// ErrUnsealed is the kind of every error about a backup that may not be its log's own.
var ErrUnsealed = errors.New("nothing shows that the backup is its log's own")

// CheckSeal checks that the backup was taken with the log's seal key and has not been changed since. Without a key, nil, it takes
// the code key: if that is the one in the backup, this finds damage, but no change by a reader of that key. Errors: ErrUnsealed.
func (b *Backup) CheckSeal(ctx context.Context, key *seal.Key) error {
	if key == nil {
		key = seal.Derive(b.key, b.Log)
	}
	if _, err := os.Lstat(filepath.Join(b.dir, sealFile)); errors.Is(err, fs.ErrNotExist) {
		return b.unsealed("it has no " + sealFile)
	}
	raw, err := b.small(ctx, sealFile, mostKey, false)
	switch {
	case err != nil:
		return err
	case string(raw) != sealOf(key, b.rawSums):
		return b.unsealed(sealFile + " was made with another key, or for other files, or is damaged")
	}
	return nil
}

func (b *Backup) unsealed(why string) error {
	return fmt.Errorf("%w (log %s, key with fingerprint %s): %s", ErrUnsealed, b.Log, b.KeyFingerprint, why)
}

// log is the identity of the backup's log.
func (b *Backup) log() topology.Log {
	return topology.Log{UUID: b.Log, Lanes: b.Lanes, KeyFingerprint: b.KeyFingerprint, Format: b.LogFormat, Created: b.LogCreated}
}
