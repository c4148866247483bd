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

// Backup is a backup whose files have been checked.
type Backup struct {
	Manifest
	dir  string
	sums map[string]string
	// rawSums is the file with them.
	rawSums []byte
	infos   []streamInfo // in the order of Streams
	key     *[32]byte
}

// Open reads a backup and checks every byte of it. progress, which may be nil, is called with the number of bytes read.
// Errors name the file: ErrDamaged, a newer
// format, a stream that scrip does not make so, a directory that is no backup.
func Open(ctx context.Context, dir string, progress func(done, total int64)) (*Backup, error) {
	b := &Backup{dir: dir}
	if err := b.readSums(); err != nil {
		return nil, err
	}
	manifest, err := b.small(manifestFile)
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
	if b.Key {
		if err := b.readKey(); err != nil {
			return nil, err
		}
	}
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

// CodeKey returns the code key, nil if the backup was taken without it.
func (b *Backup) CodeKey() *[32]byte { return b.key }

// readSums reads SHA256SUMS, whose form is that of sha256sum(1), strictly.
func (b *Backup) readSums() error {
	raw, err := os.ReadFile(filepath.Join(b.dir, sumsFile))
	if errors.Is(err, fs.ErrNotExist) {
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
	if err != nil {
		return fmt.Errorf("reading the backup: %w", err)
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

// open opens one of the backup's files.
func (b *Backup) open(name string) (*os.File, error) {
	f, err := os.Open(filepath.Join(b.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, damaged("%s is missing", name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the backup: %w", err)
	}
	return f, nil
}

// small reads a small file completely.
func (b *Backup) small(name string) ([]byte, error) {
	f, err := b.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("reading the backup: %w", err)
	}
	if sumOf(data) != b.sums[name] {
		return nil, b.mismatch(name)
	}
	return data, nil
}

func (b *Backup) mismatch(name string) error {
	return damaged("%s does not have the checksum in %s", name, sumsFile)
}

func (b *Backup) readKey() error {
	raw, err := b.small(keyFile)
	if err != nil {
		return err
	}
	key, err := code.ParseKey(string(raw))
	if err != nil {
		return damaged("%s: %w", keyFile, err)
	}
	if code.Fingerprint(key) != b.KeyFingerprint {
		return damaged("%s is not the key of this log", keyFile)
	}
	b.key = &key
	return nil
}

// readStream checks one stream's files and keeps the small one.
func (b *Backup) readStream(ctx context.Context, s Stream, progress func(n int)) error {
	raw, err := b.small(s.info())
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
	f, err := b.open(s.data())
	if err != nil {
		return err
	}
	defer f.Close()
	digest := sha256.New()
	buf := make([]byte, 1<<20)
	size := int64(0)
	for {
		n, err := f.Read(buf)
		_, _ = digest.Write(buf[:n])
		size += int64(n)
		progress(n)
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("reading the backup: %w", err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if size != s.Size {
		return damaged("%s has %d bytes, %s lists %d", s.data(), size, manifestFile, s.Size)
	}
	if hexSum(digest) != b.sums[s.data()] {
		return b.mismatch(s.data())
	}
	return nil
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
// the one in the backup: that finds damage, but no change by a reader of that key. Errors: ErrUnsealed.
func (b *Backup) CheckSeal(key *seal.Key) error {
	if key == nil && b.key != nil {
		key = seal.Derive(*b.key, b.Log)
	}
	why := ""
	raw, err := os.ReadFile(filepath.Join(b.dir, sealFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		why = "it has no " + sealFile
	case err != nil:
		return fmt.Errorf("reading the backup: %w", err)
	case key == nil:
		why = "there is no key to check its seal with"
	case string(raw) != sealOf(key, b.rawSums):
		why = sealFile + " was made with another key, or for other files, or is damaged"
	default:
		return nil
	}
	return fmt.Errorf("%w (log %s, key with fingerprint %s): %s", ErrUnsealed, b.Log, b.KeyFingerprint, why)
}

// log is the identity of the backup's log.
func (b *Backup) log() topology.Log {
	return topology.Log{UUID: b.Log, Lanes: b.Lanes, KeyFingerprint: b.KeyFingerprint, Format: b.LogFormat, Created: b.LogCreated}
}
